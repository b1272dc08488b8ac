// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "engine/state/resume_settings.hpp"
#include "mpi/host/shared_region.hpp"
#include "parallel/store/parameter_store.hpp"

// Reading checkpoints together: every rank reads and checks one, and it is taken only if all ranks can read it; or the
// ranks of a host read a part of the weights each.
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

/// The first of these that all ranks can read. With resume=auto or must, damaged ones before it are renamed, so that
/// they are neither counted nor tried again. Collective.
/// @return  nullopt = none can be read, and the settings allow a fresh start
/// @throws CheckpointError  none can be read; or one cannot be read for another reason than damage; on every rank
std::optional<ReadCheckpoint> read_agreed(const AgreedReading& reading, const std::vector<std::string>& paths,
                                          const ResumeSettings& settings);

/// The weights of checkpoints of Lockstep, of which each host has one copy: its ranks read a part each into memory that
/// all of them share. The state of the optimizer and of the hooks is not read.
class HostWeights {
 public:
  /// Reads the indexes of the checkpoints and allocates memory for their weights. Collective over `world`.
  /// @param host  the ranks of `world` on this host
  /// @throws CheckpointError, CommError  an index cannot be read, or there is not enough memory; on every rank
  HostWeights(const mpi::Communicator& world, const mpi::Communicator& host, const std::vector<std::string>& paths);

  /// Reads the part of this rank. The arrays have their values as soon as all ranks have returned from this function,
  /// and must not be used after this object.
  /// @param path  one of the constructor's
  /// @throws CheckpointError  as checkpoints::read
  checkpoints::Archive read(const std::string& path) const;

 private:
  mpi::SharedRegion memory_;
  std::map<std::string, checkpoints::RestoreTargets> targets_;  // checkpoint path -> targets
};

}  // namespace lockstep::engine
