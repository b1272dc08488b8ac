// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <optional>
#include <string>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "engine/state/resume_settings.hpp"
#include "parallel/store/parameter_store.hpp"

// Every rank reads and checks a checkpoint, and it is taken only if all ranks can read it.
namespace lockstep::engine {

/// The arguments of an agreed reading of a checkpoint.
struct AgreedReading {
  const mpi::Communicator& world;
  parallel::ParameterStore& store;      ///< holds the targets
  checkpoints::RestoreTargets targets;  ///< the ranks that share their memory read a part each
};

/// Divides the reading of memory that the ranks of a host share among them, about as many bytes for each.
/// @param host  these ranks
void divide_reading(checkpoints::RestoreTargets& shared, const mpi::Communicator& host);

struct ReadCheckpoint {
  std::string path;
  checkpoints::Archive archive = {};
};

/// Collective.
/// @throws CheckpointError  some rank cannot read it; on every rank
ReadCheckpoint read_agreed(const AgreedReading& reading, const std::string& path);

/// The first of these that all ranks can read. Damaged ones before it are renamed, so that they are neither counted nor
/// tried again. Collective.
/// @return  nullopt = none can be read, and the settings allow a fresh start
/// @throws CheckpointError  none can be read; or one cannot be read for another reason than damage; on every rank
std::optional<ReadCheckpoint> read_first_agreed(const AgreedReading& reading, const std::vector<std::string>& paths,
                                                const ResumeSettings& settings);

}  // namespace lockstep::engine
