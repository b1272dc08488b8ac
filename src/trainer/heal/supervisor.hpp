// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// `trainer heal LAUNCHER ...` starts a job, and starts it again after a failure. It uses no MPI.
namespace lockstep::trainer {

/// The command line of `trainer heal`.
struct HealCommand {
  std::int64_t max_heals = 5;         ///< recoveries without a new checkpoint; 0 = none
  std::vector<std::string> launcher;  ///< the launcher, its options, the program and its arguments
};

/// @param arguments  those after the word `heal`
/// @throws ConfigError  an unknown option, or no launcher
HealCommand parse_heal(const std::vector<std::string>& arguments);

/// The end of one start of a job.
struct JobEnd {
  int exit_code = 0;               ///< code of the launcher; 128 + its signal if a signal ended it
  std::optional<int> told;         ///< exit code that the run has told; none = it was killed
  bool is_stop_requested = false;  ///< the supervisor has been asked to stop the job
};

/// The exit code of a job: that which the run has told, else that of the launcher; 137 if it has lost all of its ranks
/// and mpirun says 0.
int exit_code_of(const JobEnd& end);

/// Whether starting the job again can help. It cannot after errors of the configuration, the data, the checkpoint or
/// the numbers, which would come again, nor after a request to stop.
bool can_heal(const JobEnd& end);

/// The arguments of the next start: those of the first one, with resume=auto and the folder of the run.
/// @param folder  "" = not known; then they stay as they are
std::vector<std::string> restart_arguments(std::vector<std::string> launcher, const std::string& folder);

/// Starts the job until it ends well or cannot be healed. Signals are passed on to the launcher. After each failure,
/// processes that the launcher has left behind are ended, and hosts of --host that cannot be reached, or on which ranks
/// have died twice, are left out.
/// @return  the exit code of the job
int supervise(const HealCommand& command);

}  // namespace lockstep::trainer
