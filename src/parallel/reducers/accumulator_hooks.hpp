// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "parallel/store/named_parameter.hpp"

namespace lockstep::parallel {

using NodeHandle = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

/// Hears of every run of a parameter's gradient accumulator, after it has run.
class AccumulatorListener {
 public:
  virtual ~AccumulatorListener() = default;
  /// @param has_gradient  false where autograd had nothing to accumulate, or a layer wrote the gradient by itself
  virtual void on_accumulated(std::size_t parameter, bool has_gradient) = 0;
};

/// Hooks on the gradient accumulators of parameters, for its own lifetime.
class AccumulatorHooks {
 public:
  /// @param listener  outlives the hooks
  AccumulatorHooks(const std::vector<NamedParameter>& parameters, AccumulatorListener& listener);
  ~AccumulatorHooks();
  AccumulatorHooks(const AccumulatorHooks&) = delete;
  AccumulatorHooks& operator=(const AccumulatorHooks&) = delete;

  /// The accumulators, in the order of the parameters.
  const std::vector<NodeHandle>& nodes() const noexcept { return accumulators_; }

 private:
  // A parameter holds its accumulator weakly: without these references the hooks would vanish.
  std::vector<NodeHandle> accumulators_;
  std::vector<std::uintptr_t> hooks_;
};

}  // namespace lockstep::parallel
