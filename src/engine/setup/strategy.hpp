// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <memory>
#include <string>
#include <vector>

#include "core/keys/cited.hpp"
#include "parallel/comm_hooks/post_local_sgd.hpp"

namespace lockstep::engine {

/// Post-local SGD: gradients are averaged over groups of ranks, parameters over larger ones every few steps.
struct PostLocalSettings {
  struct Average {
    std::int64_t period = 1;  ///< steps
    std::int64_t ranks = 0;   ///< consecutive ranks; 0 = all

    bool operator==(const Average&) const = default;
  };
  Cited<std::vector<Average>> averages = {};  ///< the last one is of all ranks; empty = disabled
  std::int64_t begin = 100;                   ///< steps with gradients averaged over all ranks
  Cited<std::int64_t> group = {-1};           ///< consecutive ranks that average gradients; -1 = those of a host

  static KeySpecs keys();
  /// @throws ConfigError  a value is malformed
  static PostLocalSettings from(const Section& strategy);
  bool operator==(const PostLocalSettings&) const = default;
};

struct StrategySettings {
  Cited<std::string> name = {"auto"};
  int stage = 3;                 ///< sharded: what is divided among ranks, in [1, 3]
  bool is_within_hosts = false;  ///< sharded: the ranks of each host divide a copy of their own
  std::string blocks = "";       ///< stage 3: names, separated by commas; empty = the outermost that consist of blocks
  bool prefetches = true;        ///< stage 3
  bool offloads = false;         ///< sharded, on GPUs
  PostLocalSettings post_local = {};

  /// All keys of section `strategy`.
  static KeySpecs keys();
  static StrategySettings from(const Section& strategy);
  bool operator==(const StrategySettings&) const = default;
};

/// A row of the table of strategies: how training is laid out over the ranks.
struct StrategyRow {
  std::string name;
  std::string help;
  /// Null: any number of ranks. Not collective.
  /// @throws ConfigError  the strategy does not work on so many ranks
  void (*require)(const StrategySettings& settings, int world_size) = nullptr;
  /// Changes the options of the wrapper in addition to section `ddp`; null = no change.
  void (*lay_out)(const StrategySettings& settings, parallel::DdpOptions& options) = nullptr;
  /// One rank alone: the wrapper is DataParallel.
  bool is_alone = false;
};

/// single, ddp, sharded.
const std::vector<StrategyRow>& strategies();

/// The row that the settings name; auto: single for one rank, else ddp.
const StrategyRow& chosen_strategy(const StrategySettings& settings, int world_size);

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
