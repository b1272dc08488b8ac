// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/layers.hpp>

namespace lockstep::models {

/// gelu(layer(input)), where LibTorch would read and write the values between once more: in one pass with the product
/// if nothing is differentiated, or else in one pass that also computes the derivative. With a tap, the layers run one
/// by one.
/// @param input  [..., in]
/// @return       [..., out]
at::Tensor linear_gelu(Linear& layer, const at::Tensor& input);

}  // namespace lockstep::models
