// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

// What layers compute, for weights that live elsewhere (a tied head). The same as LibTorch's functions of these names,
// but for a parameter with a gradient sink the backward writes there. Write models::linear, or the compiler sees both.
namespace lockstep::models {

/// y = x W^T + b
/// @param input   [..., in]
/// @param weight  [out, in]
/// @param bias    [out], or undefined
/// @return        [..., out]
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);

/// The rows of `weight` that `tokens` name.
/// @param tokens  [...] int64 or int32, in [0, count)
/// @param weight  [count, features]
/// @return        [..., features]
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight);

}  // namespace lockstep::models
