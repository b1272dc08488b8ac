// SPDX-License-Identifier: BSD-3-Clause
// Vectors over all parameters, by LibTorch's foreach operations: on a GPU one launch each, however many parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep::optim {

/// Vectors have the length of all parameters together: of each that this rank owns a flat tensor, as it lies in memory.
/// Empty where this rank owns nothing.
using Vector = std::vector<at::Tensor>;

/// a + factor * b
Vector sum(const Vector& a, double factor, const Vector& b);
Vector product(const Vector& a, double factor);
Vector signs(const Vector& a);
/// target += factor * values
void add(const Vector& target, double factor, const Vector& values);
/// target = from
void assign(const Vector& target, const Vector& from);

}  // namespace lockstep::optim
