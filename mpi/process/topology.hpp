// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <map>
#include <string>
#include <vector>

namespace lockstep::mpi {

/// The affinity mask of this process, one bit per processor, lowest first.
std::string affinity_mask();

/// The processors that are in `mask` or in `other`.
std::string union_of(std::string mask, const std::string& other);

/// How many processors `mask` has, at least 1.
int count_cpus(const std::string& mask);

/// The numbers of processors, in increasing order.
using Cpus = std::vector<int>;

Cpus cpus_in(const std::string& mask);

/// A list as Linux prints it: "0-3,8" is 0, 1, 2, 3, 8.
/// @return  empty where the text is no such list
Cpus parse_cpu_list(const std::string& text);

/// The number of the core of each processor: that of the first processor of the core.
/// @param root  folder that contains sys, for tests
std::map<int, int> cores_of(const Cpus& cpus, const std::string& root = "/");

/// How many cores the processors belong to.
int count_cores(const Cpus& cpus, const std::map<int, int>& core_of);

/// Lets all threads of this process, and those that they start, run on these processors only.
/// @return  false = the system refuses it; some threads may be bound
bool bind_process(const Cpus& cpus);

/// The hosts where the ranks of a communicator run.
struct Topology {
  int local_rank = 0;  ///< position among the ranks of this host
  int local_size = 1;  ///< ranks on this host
  int host_index = 0;  ///< hosts are numbered by their lowest rank
  int host_count = 1;
  std::vector<int> host_of_rank;  ///< host index of every rank
  std::string host_name;          ///< host name of this rank
  int cpus = 1;                   ///< processors that this rank may run on: the smaller of affinity mask and quota
  int host_cpus = 1;              ///< processors that the ranks of this host may run on, taken together
  double cpu_quota = 0;           ///< processor time that the control group of this rank allows; 0 = unlimited

  /// Collective.
  /// @param hosts  0 = hosts are where the ranks run. Else the ranks are taken as if they ran on so many hosts, which
  /// get
  ///               ranks that follow each other: a way to try several hosts on one
  /// @throws ConfigError  more hosts than ranks, on every rank
  static Topology of(const Communicator& world, int hosts = 0);

  /// The ranks of this host. Collective over `world`, of which this is the topology.
  Communicator split_by_host(const Communicator& world) const { return world.split(host_index, world.rank()); }

  /// A warning in one sentence when `threads_per_rank` compute and loader threads do not fit the processors that the
  /// ranks of this host may use; empty when they fit. Not collective.
  std::string oversubscription(int threads_per_rank) const;
};

}  // namespace lockstep::mpi
