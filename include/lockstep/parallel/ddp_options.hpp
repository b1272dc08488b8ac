// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/parallel/comm_hook.hpp>

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::parallel {

/// The sizes of gradient buckets in bytes.
struct BucketLimits {
  /// Sizes of the buckets in the order of reduction; the last size is repeated.
  std::vector<std::int64_t> bucket_bytes = {25 << 20};
  /// Only with a single bucket_bytes: size of the bucket that is reduced last, which does not overlap with computation.
  /// 0 = like the others.
  std::int64_t last_bucket_bytes = 1 << 20;

  /// Reads bucket_mb and last_bucket_mb of section `ddp`.
  static BucketLimits from(const Section& ddp);
};

struct ReducerOptions {
  BucketLimits limits = {};
  /// Search the graph of the outputs of each forward for parameters that it does not use, and do not wait for these.
  bool finds_unused = false;
  /// All steps have the graph of the first synchronized step, in which the uses of each parameter are counted.
  bool has_static_graph = false;
};

/// The synchronization of buffers (such as running statistics) between ranks.
enum class BufferMode {
  off,        ///< each rank keeps its own values; synchronize_buffers averages them on request
  broadcast,  ///< values of rank 0 before each synchronized forward
  average,    ///< average before each synchronized forward
};

/// The state that is discarded after an exception.
enum class GivenUp {
  step,       ///< Its operations are under way: ranks that came to different ones take all of them to their end.
  recording,  ///< Its operations were recorded in a graph and never ran: there is nothing to communicate.
};

/// When train_step reports trained parameters that are not in the graph of the loss.
enum class AnomalyCheck { off, once, always };

/// The parts of the training state that are divided among ranks (ZeRO). Source: Rajbhandari et al., "ZeRO: memory
/// optimizations toward training trillion parameter models", 2020.
struct Sharding {
  int stage = 0;  ///< 0 = nothing; 1: the optimizer's state; 2: averaged gradients, too; 3: parameters, too
  /// Stage 3: paths of the blocks with parameters that are gathered together, as for models::recompute_tap. Other
  /// parameters are gathered for the whole forward and backward. Empty = the outermost blocks that consist of blocks.
  std::vector<std::string> blocks = {};
  bool prefetches = true;  ///< stage 3: gather the parameters of the next block during the computation of a block
  /// GPUs only: keep the optimizer state in host memory and update there.
  bool offloads = false;
  /// The ranks of each host divide a copy of their own, and gradients are averaged over the copies, too. Every host has
  /// the same number of ranks. False = all ranks divide one copy.
  bool is_within_hosts = false;
  /// Each parameter is in the slice of one rank, as rules that update whole parameters require.
  bool owns_whole_parameters = false;
  bool is_as_on_gpu = false;  ///< only for tests: use the code for GPUs on the CPU
};

struct DdpOptions {
  ReducerOptions reducer = {};
  BufferMode buffers = BufferMode::off;
  bool shares_parameters = false;        ///< one copy of the parameters per host
  int hosts = 0;                         ///< see Topology::of
  bool synchronizes_batch_norm = false;  ///< use statistics of several ranks, see convert_to_sync_batch_norm
  /// > 0 = this many consecutive ranks share the statistics, the last ones possibly fewer; 0 = all ranks; -1 = the
  /// ranks of a host.
  int batch_norm_ranks = 0;
  AnomalyCheck anomaly_check = AnomalyCheck::off;
  std::vector<std::string> recompute = {};  ///< blocks to recompute in backward, see models::recompute_tap
  bool weighs_samples = false;              ///< train_step weights ranks by their number of samples instead of equally
  /// Creates the communication hook; empty = none.
  std::function<ChosenHook(mpi::Collectives&)> comm_hook = {};
  std::vector<std::string> ignored = {};  ///< full names of parameters and buffers that are not synchronized
  /// > 0 = a global batch consists of this many lanes, summed by a fixed tree, so that results do not depend on the
  /// number of ranks; each rank's forwards are then the lanes that LaneTree::even gives it.
  int lanes = 0;
  /// Type of autocast in forward and losses of train_step and val_step, see models::Autocast.
  std::optional<at::ScalarType> autocast = {};
  /// The number of the part of each trained parameter, by full name, if an optimizer of its own updates each part;
  /// empty = one optimizer updates all. See DistributedDataParallel::part.
  std::map<std::string, std::size_t> parts = {};
  bool separates_parts = false;  ///< gradients of each part are reduced on their own, so that parts can train in turn
  Sharding sharding = {};        ///< parts of the training state that are divided among ranks
  int root = 0;                  ///< rank that provides the initial values
  bool checks_writes = false;    ///< writes to parameters outside of ParameterStore::write are reported and end the job
  bool reports_times = false;    ///< train_step measures times, for `report`

  /// Reads section `ddp`. `auto` shares parameters if several ranks of a host use shared memory.
  static DdpOptions from(const Section& ddp, const mpi::Collectives& collectives,
                         const std::vector<CommHookRow>& comm_hooks = builtin_comm_hooks());
};

/// The keys of section `ddp`.
KeySpecs ddp_keys(const std::vector<CommHookRow>& comm_hooks = builtin_comm_hooks());

}  // namespace lockstep::parallel
