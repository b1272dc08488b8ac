// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>

namespace lockstep::mpi {

/// The slurm job that this process belongs to, as the environment states it.
struct SlurmJob {
  std::string id;               ///< digits
  int restarts = 0;             ///< how often it was requeued
  bool is_step_task = false;    ///< started by srun: what slurm signals to the job's steps reaches this process
  std::optional<double> end{};  ///< end of the allocation, in seconds since 1970; only set by some versions of Slurm
};

/// None outside of slurm. Not collective: mpirun gives the variables to the ranks of its own host only.
std::optional<SlurmJob> slurm_job();

/// Seconds that slurm leaves to the job: its end, else what `squeue` answers within 5 s; none when neither is known
/// or there is no limit. Starts a process: for one rank, once. Not collective.
std::optional<double> seconds_left(const SlurmJob& job);

}  // namespace lockstep::mpi
