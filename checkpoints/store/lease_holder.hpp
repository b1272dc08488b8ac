// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace lockstep::checkpoints {

/// The process that a file LEASE names.
struct LeaseHolder {
  std::string host;
  std::string process;
  std::string system;   ///< boot of the kernel and name space of processes, in which the number is valid; may be empty
  std::string started;  ///< start of the process, in ticks of its kernel; may be empty
  std::string job;      ///< Slurm job; may be empty
  std::string cluster;  ///< Slurm cluster; may be empty
  long restarts = 0;    ///< how often Slurm has requeued the job

  bool is_named() const;         ///< whether host and process are there: an empty file has no holder
  std::string text() const;      ///< contents of the file
  std::string describe() const;  ///< "process 7 on n1 (Slurm job 41)"
};

/// This process.
LeaseHolder this_holder();

/// The holder in a lease. A field that is missing is empty.
/// @throws CheckpointError  the file exists but cannot be read
LeaseHolder read_holder(const std::string& path);

enum class JobState { unknown, running, suspended, ended };

/// The state that the answer of `squeue -h -j JOB -o %T` says about the processes of a job.
/// @param exit_code  of squeue
JobState job_state_of(const std::string& answer, int exit_code);

struct LeaseVerdict {
  bool is_dead = false;
  bool is_local = false;    ///< the process was looked up on this host
  std::string remedy = {};  ///< advice for the user if the holder is not dead
};

/// Whether a holder has ended. A process that can be looked up decides alone, whatever its job is. Otherwise these
/// have ended: an earlier start of this Slurm job, a job that squeue does not list, and a holder that has not renewed
/// its lease for ten minutes.
/// @param age  time since the lease was renewed, by the clock of its file system; negative = in the future
LeaseVerdict judge(const LeaseHolder& holder, std::chrono::seconds age);

}  // namespace lockstep::checkpoints
