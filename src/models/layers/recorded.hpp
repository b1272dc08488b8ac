// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <cstdint>
#include <memory>
#include <utility>

// The nodes of layers are written manually and not as torch::autograd::Function: that costs 2 us more per call, a tenth
// of a small layer's forward and backward.
namespace lockstep::models {

template <class Backward, class... Arguments>
std::shared_ptr<Backward> backward_node(Arguments&&... arguments) {
  return {new Backward(std::forward<Arguments>(arguments)...), torch::autograd::deleteNode};
}

/// The result of `compute`, which autograd does not see, as the output of `node`.
template <class Compute>
at::Tensor output_of(const std::shared_ptr<torch::autograd::Node>& node, const Compute& compute) {
  at::Tensor output;
  {
    const at::AutoDispatchBelowADInplaceOrView not_recorded;
    output = compute();
  }
  torch::autograd::set_history(output, node);
  return output;
}

/// Announces a kernel to the observers of LibTorch's operators while it computes, as engine::FlopCounter and profilers
/// are. Without observers, it costs a few nanoseconds.
class KernelRecord {
 public:
  /// @param name   "lockstep::<kernel>"
  /// @param flops  floating-point operations of products, its only input
  explicit KernelRecord(const char* name, std::int64_t flops = 0) : flops_(flops) {
    if (record_.isActive()) record_.before(name, c10::ArrayRef<const c10::IValue>(&flops_, 1));
  }

 private:
  c10::IValue flops_;
  at::RecordFunction record_{at::RecordScope::FUNCTION};
};

}  // namespace lockstep::models
