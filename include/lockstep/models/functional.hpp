// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

// The computations of layers as functions, for weights that belong to another layer (a tied head). They compute the
// same as LibTorch's functions of these names, but faster, and backward writes to the gradient sink of a parameter of
// `linear` or `embedding`. Write models::linear to avoid ambiguity.
namespace lockstep::models {

/// y = x W^T + b
/// @param input   [..., in]
/// @param weight  [out, in]
/// @param bias    [out], or undefined
/// @return        [..., out]
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);

/// The rows of `weight` with the indices `tokens`.
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

/// Whether batch_norm supports them: float32 or bfloat16 on the CPU, in channels-last layout.
bool is_for_batch_norm(const NormInputs& inputs);

/// relu(batch_norm(input) + residual) of a training batch; updates the running statistics. Equal to the sequence of
/// LibTorch's functions, with about half as many memory accesses.
/// @param running_mean  [C] float32
/// @param running_var   [C] float32: computed from unbiased variances
/// @param momentum      weight of this batch in the running statistics
at::Tensor batch_norm(const NormInputs& inputs, at::Tensor running_mean, at::Tensor running_var, double momentum);

}  // namespace lockstep::models
