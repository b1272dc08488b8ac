// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "kernels/kernels.hpp"

namespace lockstep::models {

// The three matrix products of a linear layer, without autograd. With few rows they are bound by moving the weight, and
// the BLAS that LibTorch takes moves it several times: it packs it first, or clears the result first; with many rows
// its kernel is the slower one on some processors. So where they are faster, products of float32 on a CPU come from
// oneDNN or are DotProducts or an OuterProduct. Which it is depends on sizes, and on kernels::is_used.

/// y = x W^T + b
/// @param input   [..., in]
/// @param weight  [out, in]
/// @param bias    [out], or undefined
at::Tensor linear_output(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);

/// The same by oneDNN, whatever is faster.
/// @param weight  laid out in any way
/// @param after   what follows: "none", "relu" or "gelu"
at::Tensor linear_of_one_dnn(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                             const char* after = "none");

/// gelu(x W^T + b) by oneDNN in one pass over memory.
/// @return  undefined where a gradient may need the values between, under autocast, with few rows, or where LibTorch is
///          the faster one: see kernels::is_used
at::Tensor linear_gelu_output(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);

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

// Products under autocast on processors that have no instructions for numbers of 16 bits, where LibTorch's products of
// such numbers take about ten times as long as those of float32, and those for which it has no fast ones on any
// processor. There, layers round the factors to 16 bits, as autocast does, and multiply them in float32: the products
// are the same, and the sums are more exact.

/// The type to which layers round their factors now; none = they compute as usual.
/// @param factor  on a CPU, float32 or of that type, unless the answer is none
/// @param kernel  which products: rounded_products, rounded_attention or rounded_depthwise
std::optional<at::ScalarType> rounding_of_products(const at::Tensor& factor,
                                                   kernels::Kernel kernel = kernels::Kernel::rounded_products);

/// A parameter of 16 bits in float32, recorded by autograd: its gradient is rounded to its type. Others, also undefined
/// ones, are returned as they are.
at::Tensor as_float(const at::Tensor& parameter);

/// A factor in float32, rounded to `type`. Recorded by autograd.
at::Tensor rounded_factor(const at::Tensor& tensor, at::ScalarType type);

/// The same for a weight, not recorded: its gradient passes the rounding unchanged.
at::Tensor rounded_weight(const at::Tensor& weight, at::ScalarType type);

}  // namespace lockstep::models
