// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <optional>
#include <string>

// The facts about how this program was started. Those that the variables of the environment say are pure functions of
// them, so that every launcher can be tried in a test.
namespace lockstep::mpi {

/// The slurm job that this process belongs to, as the environment states it.
struct SlurmJob {
  std::string id;               ///< digits
  std::string array_id = {};    ///< id of the whole array; empty = the job belongs to none
  std::string array_task = {};  ///< digits; empty = the job belongs to no array
  int restarts = 0;             ///< how often it was requeued
  bool is_step_task = false;    ///< started by srun: what slurm signals to the job's steps reaches this process
  std::optional<double> end{};  ///< end of the allocation, in seconds since 1970; only set by some versions of Slurm
};

/// None outside of slurm. Not collective: mpirun gives the variables to the ranks of its own host only.
std::optional<SlurmJob> slurm_job();

/// Seconds that slurm leaves to the job: its end, else what `squeue` answers within 5 s; none when neither is known
/// or there is no limit. Starts a process: for one rank, once. Not collective.
std::optional<double> seconds_left(const SlurmJob& job);

/// The line that `scontrol show job` prints about the job within 5 s; "" = nothing. Likewise.
std::string description_of(const SlurmJob& job);

/// The variable of Open MPI that chooses how ranks of one host copy large messages.
inline constexpr const char* kCopyMechanism = "OMPI_MCA_btl_vader_single_copy_mechanism";

using Variables = std::map<std::string, std::string>;

Variables current_variables();

/// Whether the launcher gave each rank processors of its own, so that a narrow mask does not mean crowding.
bool is_bound_by_launcher(const Variables& variables);

/// How many ranks the launcher started on this host; 0 when it does not say. Under slurm the fullest host counts.
int ranks_on_host(const Variables& variables);

struct HostFacts {
  bool has_fabric = false;         ///< an InfiniBand or Omni-Path device is present
  int cpus = 1;                    ///< processors in this rank's affinity mask
  bool can_read_processes = true;  ///< process_vm_readv is allowed
};

/// The parameters of Open MPI to set before MPI_Init: those that are not set yet.
Variables start_settings(const Variables& variables, const HostFacts& host);

/// The program that started it: "mpirun", also inside of a slurm job; "srun"; or "none": by itself, one rank.
std::string launcher_of(const Variables& variables);

/// The fault in the way this program was started, in one sentence; empty when it is fine.
/// @param world_size  ranks that MPI sees; 0 before MPI was initialized
std::string launch_fault(const Variables& variables, int world_size);

/// The job in which slurm started this program, whatever started the ranks; none where its id is no number.
std::optional<SlurmJob> slurm_job_of(const Variables& variables);

/// Whether this process may read the memory of the other ranks of its host with process_vm_readv. Containers and
/// Yama (ptrace_scope 2 and 3) deny it; Open MPI then reports each message that it could not copy.
bool can_read_processes();

/// The warning for a job that cannot; empty otherwise, and where the user has chosen a mechanism.
std::string process_memory_remark();

}  // namespace lockstep::mpi
