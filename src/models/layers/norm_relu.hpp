// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/layers.hpp>

#include <ATen/ops/relu.h>

#include "models/layers/constant_weights.hpp"

namespace lockstep::models {

/// relu(norm(input) + residual), with fewer memory accesses for a BatchNorm. A tap sees the normalization alone.
/// @param norm      layer, or null
/// @param input     result of a layer, which may be overwritten
/// @param residual  undefined = none
inline at::Tensor norm_relu(Block* norm, const at::Tensor& input, const at::Tensor& residual = {}) {
  auto* const batch_norm = is_tapped() ? nullptr : dynamic_cast<BatchNorm*>(norm);
  if (batch_norm != nullptr) return batch_norm->forward_relu(input, residual);
  if (norm == nullptr && !residual.defined()) return at::relu(input);
  const at::Tensor output = norm == nullptr ? input : run(*norm, input);
  return (residual.defined() ? output.add_(residual) : output).relu_();
}

/// norm(conv(input)), in one pass over memory while weights are constant.
inline at::Tensor convolution_norm(Conv2d& conv, BatchNorm& norm, const at::Tensor& input) {
  const at::Tensor output = convolution_of_constants(conv, &norm, input, {}, /*has_relu=*/false);
  return output.defined() ? output : run(norm, run(conv, input));
}

/// relu(norm(conv(input)) + residual), likewise; see norm_relu.
inline at::Tensor convolution_norm_relu(Conv2d& conv, Block* norm, const at::Tensor& input,
                                        const at::Tensor& residual = {}) {
  auto* const batch_norm = dynamic_cast<BatchNorm*>(norm);
  if (batch_norm != nullptr || norm == nullptr) {
    const at::Tensor output = convolution_of_constants(conv, batch_norm, input, residual, /*has_relu=*/true);
    if (output.defined()) return output;
  }
  return norm_relu(norm, run(conv, input), residual);
}

}  // namespace lockstep::models
