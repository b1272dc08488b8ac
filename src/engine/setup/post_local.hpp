// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <memory>
#include <vector>

#include "engine/setup/strategy_table.hpp"
#include "parallel/comm_hooks/post_local_sgd.hpp"

namespace lockstep::engine {

/// Post-local SGD of a run: the groups of ranks, and the averages over them.
class PostLocal {
 public:
  /// @param settings  with averages
  /// @param all       of all ranks; outlives the object
  /// Collective.
  /// @throws ConfigError  a group does not divide the ranks; on every rank
  PostLocal(const PostLocalSettings& settings, const mpi::Communicator& world, mpi::Collectives& all);

  parallel::PostLocalSgd& averages() noexcept { return *averages_; }

 private:
  std::vector<std::unique_ptr<mpi::Collectives>> groups_;  // the first one averages gradients
  std::unique_ptr<parallel::PostLocalSgd> averages_;
};

/// Refuses what does not work while ranks have different weights.
/// @throws ConfigError  with the setting that excludes post-local SGD
/// Not collective.
void require_post_local(const PostLocalSettings& settings, const Sections& sections, bool uses_closure);

}  // namespace lockstep::engine
