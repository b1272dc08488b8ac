// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "mpi/shared/lane_tree.hpp"
#include "parallel/store/bucket_plan.hpp"
#include "parallel/store/named_parameter.hpp"
#include "parallel/store/reducer.hpp"

namespace lockstep::parallel {

/// A row of equal buffers of one dtype in bucket memory: one for each node of the tree that a rank may hold.
class NodeRow {
 public:
  /// Allocates. Collective.
  /// @param count  elements of one buffer
  NodeRow(DType dtype, std::int64_t count, int nodes, mpi::Collectives& collectives);

  std::byte* at(int node, std::int64_t element) const {
    return memory_.bytes.data() +
           (static_cast<std::size_t>(node) * stride_ + static_cast<std::size_t>(element)) * size_of(dtype_);
  }
  const std::shared_ptr<void>& owner() const { return memory_.owner; }
  DType dtype() const { return dtype_; }

  /// Adds neighbors in the tree that this rank holds.
  void fold(mpi::LaneTree::Step step) const { mpi::fold_lane(step, memory_.bytes.data(), count_, stride_, dtype_); }
  /// Starts the sum over all ranks. Collective.
  /// @param by_ranges  the result is read by Collectives::reduce_range
  mpi::Ticket start(mpi::Collectives& collectives, const mpi::LaneTree& tree, bool by_ranges) const;

 private:
  DType dtype_;
  std::size_t count_;
  std::size_t stride_;  // elements from one buffer to the next
  mpi::BucketMemory memory_;
};

/// The buffers of a model (running statistics, say) in a step of several lanes. Each lane starts from the values at the
/// start of the step. Afterwards, floating-point buffers are averaged by the tree like the gradients, and the others
/// keep the values of any lane.
class LaneBuffers {
 public:
  /// Allocates. Collective.
  /// @param buffers  returns the model's buffers; called here and at the start of every step
  LaneBuffers(std::function<std::vector<at::Tensor>()> buffers, int nodes, mpi::Collectives& collectives);

  /// Begins a step.
  void keep();
  /// Gives the buffers the values from the start of the step.
  void restore() const;
  /// Stores the values of the lane that ends in its node, and adds neighbors in the tree that this rank holds.
  void collect(mpi::LaneTree::Step step) const;
  /// Starts the sum over all ranks. Collective.
  mpi::Ticket start(mpi::Collectives& collectives, const mpi::LaneTree& tree) const;
  /// Assigns the averages to the buffers, after the sum was awaited.
  void assign() const;

 private:
  std::function<std::vector<at::Tensor>()> buffers_;
  NodeRow sums_;
  std::vector<at::Tensor> live_;
  std::vector<at::Tensor> kept_;  // the values of live_ at the start of the step
};

/// Averages gradients over lanes, which are fixed parts of a global batch, by one tree. The result has the same bits on
/// any number of ranks.
///
/// A lane is one forward and one backward, so prepare begins a lane. Its gradients go into a bucket of their own.
/// Neighbors in the tree that one rank holds are added there; the others are added where all ranks' buckets are
/// reduced. A parameter that no lane used has no gradient. The model's buffers are treated by LaneBuffers.
class LaneReducer : public Reducer, public SlicedReducer {
 public:
  /// Allocates the buckets. Collective.
  /// @param parameters   in registration order, with dense gradients of their own type
  /// @param buffers      returns the model's buffers; called at the start of every step
  /// @param collectives  outlives the reducer
  /// @param tree         for the ranks of `collectives`
  LaneReducer(std::vector<NamedParameter> parameters, std::function<std::vector<at::Tensor>()> buffers,
              const BucketLimits& limits, mpi::Collectives& collectives, mpi::LaneTree tree,
              const ReducerObserver& observer = {});
  ~LaneReducer() override;
  LaneReducer(const LaneReducer&) = delete;
  LaneReducer& operator=(const LaneReducer&) = delete;

  bool averages_lanes() const noexcept override { return true; }
  /// Begins this rank's next lane. A lane ends when the next one begins, or with finish. The mode of a step is that of
  /// its last lane.
  void prepare(Synchronization mode) override;
  /// Called after the last of this rank's lanes.
  void finish() override;
  bool is_sliced() const noexcept override { return is_sliced_; }
  bool has_gradient(std::size_t parameter) const override;
  void visit(std::size_t parameter, std::int64_t begin, std::int64_t end, const Visit& visit, bool keeps) override;
  void release() noexcept override { is_sliced_ = false; }
  /// The step must not have been finished on any rank.
  void reset(GivenUp what) override;
  bool supports_slices() const noexcept override { return true; }

 private:
  struct LanePosition {
    std::size_t bucket = 0;
    std::int64_t offset = 0;
  };

  void end_lane();
  void pack(int node);
  void await_buckets();

  std::vector<NamedParameter> parameters_;
  mpi::Collectives& collectives_;
  StepRecorder* recorder_;
  mpi::LaneTree tree_;
  std::span<const mpi::LaneTree::Step> steps_;  // steps of this rank's lanes
  std::vector<Bucket> plan_;
  std::vector<LanePosition> positions_;         // position of each parameter
  std::vector<NodeRow> rows_;                   // row of each bucket
  NodeRow used_;                                // share of the lanes that used each parameter
  LaneBuffers buffers_;                         // buffers of the model
  std::vector<std::vector<at::Tensor>> views_;  // [node][parameter]
  std::vector<mpi::Ticket> tickets_;            // ticket of each bucket
  SliceVisits visits_;
  std::size_t lane_ = 0;  // number of the current lane of this rank
  bool is_open_ = false;  // true between the beginning and the end of a lane
  bool wants_slices_ = false;
  bool is_sliced_ = false;
};

}  // namespace lockstep::parallel
