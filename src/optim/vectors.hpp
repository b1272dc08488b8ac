// SPDX-License-Identifier: BSD-3-Clause
// Vectors over all parameters, by LibTorch's foreach operations: on a GPU one launch each, however many parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep::optim {

/// As long as all parameters together: of each that this rank owns a flat tensor, as it lies in memory. Empty where
/// this rank owns nothing.
using Vector = std::vector<at::Tensor>;

/// a + factor * b
Vector sum(const Vector& a, double factor, const Vector& b);
Vector product(const Vector& a, double factor);
Vector signs(const Vector& a);
/// to += factor * values
void add(const Vector& to, double factor, const Vector& values);
/// to = from
void assign(const Vector& to, const Vector& from);

}  // namespace lockstep::optim
