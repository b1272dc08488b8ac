// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/layers.hpp>

#include <ATen/ops/relu.h>

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

}  // namespace lockstep::models
