// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

// Products under autocast on processors that have no instructions for numbers of 16 bits, where LibTorch's products of
// such numbers take about ten times as long as those of float32. There, layers round the factors to 16 bits, as
// autocast does, and multiply them in float32: the products are the same, and the sums are more exact.
namespace lockstep::models {

/// The type to which layers round their factors now; none = they compute as usual.
/// @param factor  on a CPU, float32 or of that type, unless the answer is none
std::optional<at::ScalarType> rounding_of_products(const at::Tensor& factor);

/// A parameter of 16 bits in float32, recorded by autograd: its gradient is rounded to its type. Others, also undefined
/// ones, are returned as they are.
at::Tensor as_float(const at::Tensor& parameter);

/// A factor in float32, rounded to `type`. Recorded by autograd.
at::Tensor rounded_factor(const at::Tensor& tensor, at::ScalarType type);

/// The same for a weight, not recorded: its gradient passes the rounding unchanged.
at::Tensor rounded_weight(const at::Tensor& weight, at::ScalarType type);

}  // namespace lockstep::models
