// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/parallel/gradient_source.hpp>
#include <lockstep/parallel/named_parameter.hpp>
#include <lockstep/parallel/shard_plan.hpp>

#include <functional>
#include <memory>
#include <vector>

namespace lockstep::parallel {

/// Averages gradients so that each rank keeps only its slice of every unit.
///
/// A unit is reduced as soon as backward has brought the gradients of all of its parameters and the units before it are
/// reduced, and the gradients' own memory is free then. Every micro_batch is reduced; the slices add up. A parameter
/// without a gradient on some rank counts as zero there; without one on all ranks it has none.
///
/// On GPUs nothing waits for a reduction before the gradients are asked for, or its memory is needed again.
class ShardReducer : public GradientSource {
 public:
  /// Collective: allocates memory for the largest unit.
  /// @param parameters   in registration order, with dense gradients of their own type
  /// @param units        of all parameters, in the order in which forward uses them; reduced in the opposite order
  /// @param collectives  outlives the reducer
  /// @param on_reduced   called when backward needs the parameters of a unit no more
  ShardReducer(std::vector<NamedParameter> parameters, std::vector<Unit> units, mpi::Collectives& collectives,
               std::function<void(std::size_t unit)> on_reduced);
  ~ShardReducer() override;
  ShardReducer(const ShardReducer&) = delete;
  ShardReducer& operator=(const ShardReducer&) = delete;

  /// Before a forward with gradients. Collective: what is left of the backward before is reduced.
  void prepare();

  void finish() override;
  bool is_sliced() const noexcept override;
  bool has_gradient(std::size_t parameter) const override;
  void visit(std::size_t parameter, std::int64_t begin, std::int64_t end, const Visit& visit, bool keeps) override;
  at::Tensor part_of(std::size_t parameter, std::int64_t begin, std::int64_t end) const override;
  void release() noexcept override;
  /// There are none: units stay as they are.
  void on_new_buckets(std::function<void(const std::vector<Bucket>&)>) override {}

  /// Forgets the step at hand, after an exception on every rank. Not collective.
  void reset();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::parallel
