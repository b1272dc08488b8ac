// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <string>
#include <vector>

// The hosts of a job that mpirun starts, as far as its command line states them.
namespace lockstep::trainer {

/// A host of mpirun's option --host.
struct JobHost {
  std::string name;
  int slots = 1;
};

/// The hosts after --host or -H of mpirun; none = the option is not there.
std::vector<JobHost> hosts_in(const std::vector<std::string>& launcher);

/// The same command on fewer hosts, with as many of its ranks as these have slots for.
/// @param hosts  at least one
std::vector<std::string> on_hosts(std::vector<std::string> launcher, const std::vector<JobHost>& hosts);

/// The command that tries whether the launcher reaches a host: its options, and the program `true`.
std::vector<std::string> probe_of(const std::vector<std::string>& launcher, const JobHost& host);

/// The host of the rank that has ended the job by a signal, from a line that mpirun of Open MPI prints; "" = the line
/// says no such thing.
std::string host_that_failed(const std::string& line);

/// The hosts on which ranks have died at most once, or all if there is no such host.
/// @param failures  how often ranks have died, by host
std::vector<JobHost> reliable(const std::vector<JobHost>& hosts, const std::map<std::string, int>& failures);

}  // namespace lockstep::trainer
