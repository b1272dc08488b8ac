// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/parallel/comm_hook.hpp>
#include <lockstep/parallel/given_up.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "parallel/store/bucket_plan.hpp"

namespace lockstep::parallel {

class StepRecorder;

/// The treatment of the gradients of the backward passes that follow a forward.
enum class Synchronization {
  none,    ///< Gradients accumulate on this rank only (no_sync).
  whole,   ///< Afterwards, every `.grad` holds the average over the ranks.
  sliced,  ///< Gradients are averaged while an update visits them. Until then, `.grad` cannot be read.
};

/// The work of a kind of reducer for the wrapper. Constant throughout the reducer's life.
struct ReducerTraits {
  bool averages_forwards = false;  ///< The average covers all forwards of a step, so each forward has weight 1.
  bool averages_buffers = false;   ///< The model's buffers are equal on all ranks after every step.
};

/// The buckets of a reducer and what it has learned of the graph so far, for tests and reports.
struct BucketReport {
  std::vector<Bucket> buckets = {};  ///< Empty for a reducer without buckets.
  bool is_rebuilt = false;           ///< The buckets follow the order in which gradients arrived.
  bool could_be_static = true;       ///< Every step so far left the same parameters unused.
  std::vector<int> use_counts = {};  ///< Number of ranks that used each parameter in the last finished step.
};

/// Averages the gradients of a wrapped model over the ranks.
///
/// The wrapper calls prepare before each forward with gradients and passes the outputs to watch. The parameter store
/// calls finish after the backward pass and then, if the gradients are sliced, visits each slice and releases them.
/// Parameters are numbered in registration order. Calls are collective unless stated otherwise. A reducer can offer
/// UnevenRanks, too.
class Reducer {
 public:
  virtual ~Reducer() = default;

  virtual ReducerTraits traits() const noexcept { return {}; }

  // ---- One step

  /// Starts a forward with gradients. The mode holds for the backward passes that follow it.
  /// @throws ConfigError  the previous step left parameters without a gradient; on every rank, naming them. Where the
  ///                      host does not wait for a GPU: the step before that one
  virtual void prepare(Synchronization mode) = 0;

  /// Whether the outputs of a forward must be passed through watch. Not collective.
  virtual bool watches_outputs() const noexcept { return false; }
  /// Examines what a forward returned. The caller of the forward receives the result instead. Tensors without a
  /// gradient function are returned unchanged. Not collective.
  virtual std::vector<at::Tensor> watch(std::vector<at::Tensor> outputs) { return outputs; }

  /// Completes the gradients of a step. Whole: every `.grad` holds the average afterwards. Sliced: the gradients can be
  /// visited. A repeated call does nothing.
  /// @throws ConfigError  on every rank, naming the parameters without a gradient and the ranks on which they have none
  virtual void finish() = 0;

  /// The same as prepare and finish, for the backward passes and gradients of one part of the parameters. A reducer
  /// that does not separate parts treats all of them.
  virtual void prepare_part(std::size_t /*part*/, Synchronization mode) { prepare(mode); }
  virtual void finish_part(std::size_t /*part*/) { finish(); }

  /// Whether gradients of the last finished step wait to be visited. Not collective.
  virtual bool is_sliced() const noexcept = 0;
  /// Whether any rank had a gradient for this parameter in the last finished step. Not collective.
  virtual bool has_gradient(std::size_t parameter) const = 0;
  /// Receives elements [begin, begin + count) of a parameter's averaged gradient.
  using Visit = std::function<void(std::int64_t begin, std::int64_t count, const std::byte* values)>;
  /// Called after finish, while is_sliced: averages elements [begin, end) of a parameter, in ranges that do not cut a
  /// piece. Not collective. The gradients must stay unchanged until a barrier of the ranks.
  /// @param keeps  a second visit of the same elements follows
  virtual void visit(std::size_t parameter, std::int64_t begin, std::int64_t end, const Visit& visit, bool keeps) = 0;
  /// The same elements as a tensor [end - begin] in the memory of the device. Not collective.
  /// @throws std::logic_error  this reducer's slices are not tensors
  virtual at::Tensor part_of(std::size_t parameter, std::int64_t begin, std::int64_t end) const;
  /// All slices were visited: the gradients of the step are discarded. Not collective.
  virtual void release() noexcept = 0;

  /// Checks what the steps so far left to be checked by later calls of prepare, for which the host waits for the GPU.
  /// @throws ConfigError  as prepare
  virtual void check_last_step() {}

  /// Discards a step that an exception interrupted, on every rank.
  virtual void reset(GivenUp what) = 0;

  /// Reports to `recorder` from now on when buckets are ready, launched and awaited. The recorder must outlive the
  /// reducer. Not collective.
  virtual void record(StepRecorder& /*recorder*/) {}

  // ---- Buckets. The defaults are those of a reducer without buckets.

  /// Whether prepare may be given Synchronization::sliced. Not collective.
  virtual bool supports_slices() const noexcept { return false; }
  /// Calls `listener` now and whenever buckets are built, on every rank. Not collective.
  virtual void on_new_buckets(std::function<void(const std::vector<Bucket>&)> /*listener*/) {}
  /// Not collective.
  virtual BucketReport report() const { return {}; }
  /// The layout that the next step's buckets will have. After the first step, rank 0 knows it; from the second step on,
  /// all ranks do. Empty before the first step, and where buckets are never rebuilt. Not collective.
  virtual BucketLayout learned_layout() const { return {}; }
  /// Starts with a layout that an earlier run learned. Before the first step; every rank passes the same layout.
  /// @return  false = the layout does not fit these parameters, or no layout is ever learned; nothing changes
  virtual bool restore_layout(const BucketLayout& /*layout*/) { return false; }
  /// Replaces the average of dense gradients. Before the first step, and only once. Not collective. One rank alone
  /// communicates nothing, so its reducer ignores the hook.
  /// @param is_silent  the hook sends nothing, and the reducer does not either: sparse gradients, use counts and
  ///                   errors about missing gradients then concern each rank alone
  /// @throws ConfigError  there is a hook already, or a step was run
  virtual void set_comm_hook(CommHook /*hook*/, bool /*is_silent*/ = false) {}
};

}  // namespace lockstep::parallel
