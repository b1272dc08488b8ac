// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/lane_tree.hpp>
#include <lockstep/parallel/bucket_plan.hpp>
#include <lockstep/parallel/gradient_source.hpp>
#include <lockstep/parallel/named_parameter.hpp>

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace lockstep::parallel {

class StepRecorder;

/// Averages gradients over lanes, fixed parts of a global batch, by one tree: the same bits however many ranks compute
/// the lanes.
///
/// A lane is one forward and one backward. Its gradients go into a bucket of their own; neighbours in the tree that one
/// rank has are added there, the others where all ranks' buckets are reduced. Buffers of the model (running statistics)
/// start each lane from the values at the start of the step; afterwards floating-point ones are averaged like the
/// gradients, and the others are those after any lane. A parameter that no lane used has no gradient.
class LaneReducer : public GradientSource {
 public:
  /// Collective: allocates the buckets.
  /// @param parameters   in registration order, with dense gradients of their own type
  /// @param buffers      gives the model's buffers; asked at the start of every step
  /// @param collectives  outlives the reducer
  /// @param tree         for the ranks of `collectives`
  LaneReducer(std::vector<NamedParameter> parameters, std::function<std::vector<at::Tensor>()> buffers,
              const BucketLimits& limits, mpi::Collectives& collectives, mpi::LaneTree tree);
  ~LaneReducer() override;
  LaneReducer(const LaneReducer&) = delete;
  LaneReducer& operator=(const LaneReducer&) = delete;

  /// Before the forward of this rank's next lane; the lane ends with the next one's beginning, or with finish.
  /// @param is_sliced  how finish gives the gradients; the same for all lanes of a step
  void begin_lane(bool is_sliced);

  /// After the last of this rank's lanes. Collective.
  void finish() override;
  bool is_sliced() const noexcept override;
  bool has_gradient(std::size_t parameter) const override;
  void visit(std::size_t parameter, std::int64_t begin, std::int64_t end, const Visit& visit, bool keeps) override;
  void release() noexcept override;
  void on_new_buckets(std::function<void(const std::vector<Bucket>&)> listener) override;

  /// Forgets the lanes of a step that an exception cut short, on every rank before its buckets were reduced.
  void reset();

  /// Tells `recorder` from now on when buckets are launched and awaited; it outlives the reducer.
  void record_into(StepRecorder& recorder);

  const mpi::LaneTree& tree() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Adds one number per lane by the tree.
double sum_by_lanes(std::span<const double> values);

}  // namespace lockstep::parallel
