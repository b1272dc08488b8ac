// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/flat_parameters.hpp>
#include <lockstep/parallel/bucket_plan.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <vector>

namespace lockstep::parallel {

/// Where a ParameterStore gets averaged gradients from.
class GradientSource {
 public:
  virtual ~GradientSource() = default;

  /// Completes the gradients of a step. Whole: every `.grad` holds the average afterwards. Sliced: they can be visited.
  /// At no cost when there is nothing to complete. Collective.
  virtual void finish() = 0;
  /// Whether gradients of the last finished step wait to be visited.
  virtual bool is_sliced() const noexcept = 0;
  /// Whether any rank had a gradient for this parameter in the last finished step.
  virtual bool has_gradient(std::size_t parameter) const = 0;
  /// Receives elements [begin, begin + count) of a parameter's averaged gradient.
  using Visit = std::function<void(std::int64_t begin, std::int64_t count, const std::byte* values)>;
  /// After finish, while is_sliced: averages elements [begin, end) of a parameter, in stretches that
  /// do not cut a piece. Not collective; gradients
  /// must stay untouched until a barrier of the ranks.
  /// @param keeps  a second visit of the same elements follows
  virtual void visit(std::size_t parameter, std::int64_t begin, std::int64_t end, const Visit& visit, bool keeps) = 0;
  /// The same elements as a tensor [end - begin], where they lie; for a source that is always sliced.
  virtual at::Tensor part_of(std::size_t, std::int64_t, std::int64_t) const {
    throw std::logic_error("these gradients are not to be had as tensors");
  }
  /// All has been visited: the gradients of the step are gone.
  virtual void release() noexcept = 0;
  /// Called on every rank whenever buckets were built, and now.
  virtual void on_new_buckets(std::function<void(const std::vector<Bucket>&)> listener) = 0;
};

}  // namespace lockstep::parallel
