// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <map>
#include <string>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "mpi/host/shared_region.hpp"

namespace lockstep::engine {

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
