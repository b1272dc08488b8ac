// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

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

}  // namespace lockstep::models
