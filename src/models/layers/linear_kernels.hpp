// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

// The three matrix products of a linear layer, without autograd. With few rows they are bound by moving the weight, and
// the BLAS that LibTorch takes moves it several times: it packs it first, or clears the result first; with many rows
// its kernel is the slower one. So where they are faster, products of float32 on a CPU come from oneDNN or are an
// OuterProduct. Which it is depends on sizes alone.
namespace lockstep::models {

/// y = x W^T + b
/// @param input   [..., in]
/// @param weight  [out, in]
/// @param bias    [out], or undefined
at::Tensor linear_output(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);

/// The same by oneDNN, whatever is faster.
/// @param weight  laid out in any way
/// @param after   what follows: "none" or "relu"
at::Tensor linear_of_one_dnn(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                             const char* after = "none");

/// dx = dy W
/// @param gradient  [N, out]
/// @param weight    [out, in]
/// @return          [N, in]
at::Tensor linear_input_gradient(const at::Tensor& gradient, const at::Tensor& weight);

/// dW = dy^T x
/// @param gradient  [N, out]
/// @param input     [N, in]
/// @param target    [out, in]: overwritten
void linear_weight_gradient(const at::Tensor& gradient, const at::Tensor& input, at::Tensor target);

}  // namespace lockstep::models
