// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/layers.hpp>

#include <ATen/ops/relu.h>

namespace lockstep::models {

/// relu(norm(input)), with fewer memory accesses for a BatchNorm. A tap sees the normalization alone.
/// @param norm   layer, or null
/// @param input  result of a layer, which may be overwritten
inline at::Tensor norm_relu(Block* norm, const at::Tensor& input) {
  if (norm == nullptr) return at::relu(input);
  auto* const batch_norm = is_tapped() ? nullptr : dynamic_cast<BatchNorm*>(norm);
  return batch_norm != nullptr ? batch_norm->forward_relu(input) : run(*norm, input).relu_();
}

}  // namespace lockstep::models
