// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <optional>
#include <string>
#include <vector>

namespace lockstep::engine {

/// The checkpoints that key `resume` admits, the one to try first at the front; none for a fresh start. Collective:
/// rank 0 looks, and every rank gets the same.
/// @param source     value of the key
/// @param directory  the run's checkpoint folder
/// @param admits_memory  whether auto and must also admit copies in memory that are newer than its checkpoints
/// @throws ConfigError, CheckpointError  as load_or_resume does, on every rank
std::vector<std::string> resume_candidates(const mpi::Communicator& world, const std::string& source,
                                           const std::string& directory, bool admits_memory = true);

/// Fails early, on every rank, when `resume` cannot be: see load_or_resume. Collective.
/// @param local_dir  value of ckpt.local_dir
/// @return           the checkpoint that is tried first; none for a fresh start, and while checkpoints of an earlier
///                   start are still on the local disk
std::optional<std::string> check_resume(const mpi::Communicator& world, const std::string& resume,
                                        const std::string& checkpoint_directory, const std::string& local_dir);

}  // namespace lockstep::engine
