// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/parallel/ddp_options.hpp>

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

/// Averages the gradients of a wrapped model over the ranks.
///
/// The wrapper calls prepare before each forward with gradients. The parameter store calls finish after the backward
/// pass. Parameters are numbered in registration order. Calls are collective unless stated otherwise. The interfaces
/// below are abilities: a reducer implements those that it has.
class Reducer {
 public:
  virtual ~Reducer() = default;

  /// Whether the average covers all forwards of a step, so that each forward has weight 1, and the model's buffers,
  /// which are equal on all ranks after every step.
  virtual bool averages_lanes() const noexcept { return false; }

  /// Starts a forward with gradients. The mode holds for the backward passes that follow it.
  /// @throws ConfigError  the previous step left parameters without a gradient; on every rank, naming them. Where the
  ///                      host does not wait for a GPU: the step before that one
  virtual void prepare(Synchronization mode) = 0;
  /// Completes the gradients of a step. Whole: every `.grad` holds the average afterwards. Sliced: the gradients can be
  /// visited. A repeated call does nothing.
  /// @throws ConfigError  on every rank, naming the parameters without a gradient and the ranks on which they have none
  virtual void finish() = 0;
  /// Discards a step that an exception interrupted, on every rank.
  virtual void reset(GivenUp what) = 0;

  // The same as prepare and finish, for one part of the parameters: for reducers that treat the backward passes and
  // gradients of each part on their own.
  virtual void prepare_part(std::size_t /*part*/, Synchronization mode) { prepare(mode); }
  virtual void finish_part(std::size_t /*part*/) { finish(); }
};

/// The objects that observe a reducer. Both can be empty, and outlive it.
struct ReducerObserver {
  StepRecorder* recorder = nullptr;  ///< Learns when buckets are ready, launched and awaited.
  /// Called whenever buckets are built, on every rank; the first time by the constructor. Not collective.
  std::function<void(const std::vector<Bucket>&)> on_new_buckets = {};
};

/// Averages gradients while an update visits them, slice by slice, after Reducer::finish. Not collective.
class SlicedReducer {
 public:
  virtual ~SlicedReducer() = default;

  /// Whether prepare may be given Synchronization::sliced.
  virtual bool supports_slices() const noexcept = 0;
  /// Whether gradients of the last finished step wait to be visited.
  virtual bool is_sliced() const noexcept = 0;
  /// Whether any rank had a gradient for this parameter in the last finished step.
  virtual bool has_gradient(std::size_t parameter) const = 0;
  /// Receives elements [begin, begin + count) of a parameter's averaged gradient.
  using Visit = std::function<void(std::int64_t begin, std::int64_t count, const std::byte* values)>;
  /// Called while is_sliced: averages elements [begin, end) of a parameter, in ranges that do not cut a piece. The
  /// gradients must stay unchanged until a barrier of the ranks.
  /// @param keeps  a second visit of the same elements follows
  virtual void visit(std::size_t parameter, std::int64_t begin, std::int64_t end, const Visit& visit, bool keeps) = 0;
  /// All slices were visited: the gradients of the step are discarded.
  virtual void release() noexcept = 0;
};

/// Has slices in the memory of the device. Not collective.
class TensorSlices {
 public:
  virtual ~TensorSlices() = default;
  /// [end - begin] Elements of a parameter's averaged gradient, while SlicedReducer::is_sliced.
  virtual at::Tensor part_of(std::size_t parameter, std::int64_t begin, std::int64_t end) const = 0;
};

/// Has steps in which some ranks have no inputs. Ranks with inputs run forward and backward as usual. How the ranks
/// learn which of them have inputs is up to the caller, see Join.
class UnevenRanks {
 public:
  virtual ~UnevenRanks() = default;
  /// Takes part in one synchronized step with zero gradients, instead of its forward and backward. Afterwards, this
  /// rank has the averaged gradients, too. Collective: the other ranks run a backward.
  virtual void contribute_zeros() = 0;
  /// Divides sums over ranks by `ranks` from the next backward on, such as the number of ranks with inputs. On every
  /// rank alike; not collective.
  virtual void set_divisor(int ranks) = 0;
};

/// The buckets of a reducer and what it has learned of the graph so far, for tests and reports.
struct BucketReport {
  std::vector<Bucket> buckets = {};  ///< Empty for a reducer without buckets.
  bool is_rebuilt = false;           ///< The buckets follow the order in which gradients arrived.
  bool could_be_static = true;       ///< Every step so far left the same parameters unused.
  std::vector<int> use_counts = {};  ///< Number of ranks that used each parameter in the last finished step.
};

/// Reduces buckets during the backward pass, and learns from the graph of each forward how to divide and await them.
class AdaptiveReducer {
 public:
  virtual ~AdaptiveReducer() = default;

  /// Whether the outputs of a forward must be passed through watch. Not collective.
  virtual bool watches_outputs() const noexcept = 0;
  /// Examines what a forward returned. The caller of the forward receives the result instead. Tensors without a
  /// gradient function are returned unchanged. Not collective.
  virtual std::vector<at::Tensor> watch(std::vector<at::Tensor> outputs) = 0;
  /// Checks what the steps so far left to be checked by later calls of prepare, for which the host waits for the GPU.
  /// @throws ConfigError  as Reducer::prepare
  virtual void check_last_step() = 0;

  /// Not collective.
  virtual BucketReport report() const = 0;
  /// The layout that the next step's buckets will have. After the first step, rank 0 knows it; from the second step on,
  /// all ranks do. Empty before the first step, and where buckets are never rebuilt. Not collective.
  virtual BucketLayout learned_layout() const = 0;
  /// Starts with a layout that an earlier run learned. Before the first step; every rank passes the same layout.
  /// @return  false = the layout does not fit these parameters, or no layout is ever learned; nothing changes
  virtual bool restore_layout(const BucketLayout& layout) = 0;
};

/// The ability of a reducer; null = it does not have it.
template <class Ability>
Ability* ability_of(Reducer& reducer) {
  return dynamic_cast<Ability*>(&reducer);
}
template <class Ability>
const Ability* ability_of(const Reducer& reducer) {
  return dynamic_cast<const Ability*>(&reducer);
}

// The report and the layout of any reducer: empty for one without buckets.
BucketReport report_of(const Reducer& reducer);
BucketLayout learned_layout_of(const Reducer& reducer);

/// A gradient in a bucket that is reduced in ranges.
struct GradientSlot {
  mpi::Ticket ticket;
  std::byte* begin = nullptr;     ///< its first element, where this rank has it
  std::int64_t offset = 0;        ///< elements from the start of the bucket
  std::size_t element_bytes = 0;  ///< bytes of an element
};

/// Visits gradients in buckets that are reduced in ranges. Those that are visited a second time were averaged in place
/// by the first visit. Not collective.
class SliceVisits {
 public:
  SliceVisits(mpi::Collectives& collectives, std::size_t parameters)
      : collectives_(collectives), is_kept_(parameters) {}

  void begin_step() { is_kept_.assign(is_kept_.size(), 0); }
  /// See SlicedReducer::visit.
  void visit(const GradientSlot& gradient, std::size_t parameter, std::int64_t begin, std::int64_t end,
             const SlicedReducer::Visit& visit, bool keeps);
  /// Returns when all ranks have started the reduction of a bucket, and all that were started before it.
  void meet(mpi::Ticket ticket) const;

 private:
  mpi::Collectives& collectives_;
  std::vector<char> is_kept_;  // flags of the parameters whose own part is averaged in place
};

}  // namespace lockstep::parallel
