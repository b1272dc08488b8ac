// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/parallel/comm_hook.hpp>

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::parallel {

/// How many bytes of gradients are reduced together.
struct BucketLimits {
  /// Of the buckets in the order in which they are reduced; the last repeats.
  std::vector<std::int64_t> bucket_bytes = {25 << 20};
  /// With a single bucket_bytes: of the bucket that is reduced last, which no computation hides. 0 = like the others.
  std::int64_t last_bucket_bytes = 1 << 20;
};

struct ReducerOptions {
  BucketLimits limits = {};
  /// Search the graph of each forward's outputs for parameters that it does not use, and do not wait for these.
  bool finds_unused = false;
  /// The graph of the first synchronized step is that of all: how often each parameter is used is learned there.
  bool has_static_graph = false;
};

/// What happens to buffers (running statistics, say) between ranks.
enum class BufferMode {
  off,        ///< each rank keeps its own; synchronize_buffers averages them when asked
  broadcast,  ///< every rank takes rank 0's before each synchronized forward
  average,    ///< all ranks take the average before each synchronized forward
};

/// When train_step names trained parameters that lie outside of the loss's graph.
enum class AnomalyCheck { off, once, always };

/// How much of the state of training is divided among ranks instead of being held by each: what is known as ZeRO.
/// Source: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", 2020.
struct Sharding {
  int stage = 0;  ///< 0 = nothing; 1: the optimizer's state; 2: averaged gradients, too; 3: parameters, too
  /// Stage 3: paths of the blocks whose parameters are gathered together, as for models::recompute_tap; what is in none
  /// of them is gathered for the whole of a forward and backward. Empty = the outermost blocks that consist of blocks.
  std::vector<std::string> blocks = {};
  bool prefetches = true;  ///< stage 3: gather the next block's parameters while one computes
  /// On a GPU: optimizer state, and values that updates work on, are in the host's memory, where its loops update them.
  bool offloads = false;
  bool is_as_on_gpu = false;  ///< tests: what is done on a GPU is done on the CPU
};

struct DdpOptions {
  ReducerOptions reducer = {};
  BufferMode buffers = BufferMode::off;
  bool shares_parameters = false;        ///< one copy of the parameters per host
  int hosts = 0;                         ///< see Topology::of
  bool synchronizes_batch_norm = false;  ///< statistics of all ranks, see convert_to_sync_batch_norm
  AnomalyCheck anomaly_check = AnomalyCheck::off;
  std::vector<std::string> recompute = {};  ///< blocks to recompute in backward, see models::recompute_tap
  bool weighs_samples = false;              ///< train_step weighs ranks by their samples instead of equally
  /// Makes what replaces the averages of gradients; empty = nothing does.
  std::function<ChosenHook(mpi::Collectives&)> comm_hook = {};
  std::vector<std::string> ignored = {};  ///< full names of parameters and buffers that each rank keeps to itself
  int lanes =
      0;  ///< > 0 = a global batch consists of this many lanes, summed by a fixed tree, so that results do not
          ///< depend on the number of ranks; each rank's forwards are then the lanes that LaneTree::even gives it
  /// Forwards and losses of train_step and val_step are computed in this type where it pays, see models::Autocast.
  std::optional<at::ScalarType> autocast = {};
  Sharding sharding = {};      ///< what is divided among ranks instead of being held by each
  int root = 0;                ///< rank whose values all others start from
  bool checks_writes = false;  ///< writes to parameters outside of ParameterStore::write end the job, and are named
  bool reports_times = false;  ///< train_step notes times, for `report`

  /// From section `ddp`; `auto` shares where several ranks of a host use shared memory.
  static DdpOptions from(const Section& ddp, const mpi::Collectives& collectives);
};

/// The keys of section `ddp`.
KeySpecs ddp_keys();

}  // namespace lockstep::parallel
