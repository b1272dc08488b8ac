// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

// What layers compute, for weights that live elsewhere (a tied head). The same as LibTorch's functions of these names,
// but faster, and for a parameter of `linear` or `embedding` with a gradient sink the backward writes there. Write
// models::linear, or the compiler sees both.
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

/// N samples of C channels of H x W pixels.
struct NormInputs {
  const at::Tensor& input;     ///< [N, C, H, W]
  const at::Tensor& weight;    ///< [C] float32
  const at::Tensor& bias;      ///< [C] float32
  const at::Tensor& residual;  ///< [N, C, H, W], or undefined
  double eps;                  ///< added to the variance
  bool has_relu;
};

/// Whether batch_norm takes them: float32 or bfloat16 on a CPU, laid out channels last.
bool is_for_batch_norm(const NormInputs& inputs);

/// relu(batch_norm(input) + residual) of a training batch, which joins the running statistics. As LibTorch's functions
/// one after the other, in about half as many passes over memory.
/// @param running_mean  [C] float32
/// @param running_var   [C] float32: of unbiased variances
/// @param momentum      weight of this batch in them
at::Tensor batch_norm(const NormInputs& inputs, at::Tensor running_mean, at::Tensor running_var, double momentum);

}  // namespace lockstep::models
