// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/parallel/bucket_plan.hpp>
#include <lockstep/parallel/comm_hook.hpp>
#include <lockstep/parallel/shard_plan.hpp>

#include <c10/core/ScalarType.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::parallel {

struct ReducerOptions {
  BucketLimits limits = {};
  /// Search the graph of each forward's outputs for parameters that it does not use, and do not wait for these.
  bool finds_unused = false;
  /// The graph of the first synchronised step is that of all: how often each parameter is used is learned there.
  bool has_static_graph = false;
};

/// What happens to buffers (running statistics, say) between ranks.
enum class BufferMode {
  off,        ///< each rank keeps its own; synchronise_buffers averages them when asked
  broadcast,  ///< every rank takes rank 0's before each synchronised forward
  average,    ///< all ranks take the average before each synchronised forward
};

/// When train_step names trained parameters that lie outside of the loss's graph.
enum class AnomalyCheck { off, once, always };

struct DdpOptions {
  ReducerOptions reducer = {};
  BufferMode buffers = BufferMode::off;
  bool shares_parameters = false;        ///< one copy of the parameters per host
  int hosts = 0;                         ///< as for Topology::of
  bool synchronises_batch_norm = false;  ///< statistics of all ranks, see convert_to_sync_batch_norm
  AnomalyCheck anomaly_check = AnomalyCheck::off;
  std::vector<std::string> recompute = {};  ///< blocks to recompute in backward, see models::recompute_tap
  bool weighs_samples = false;              ///< train_step weighs ranks by their samples instead of equally
  /// Makes what replaces the averages of gradients; empty: nothing does.
  std::function<ChosenHook(mpi::Collectives&)> comm_hook = {};
  std::vector<std::string> ignored = {};  ///< full names of parameters and buffers that each rank keeps to itself
  int lanes =
      0;  ///< > 0: a global batch consists of this many lanes, summed by a fixed tree, so that results do not
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
