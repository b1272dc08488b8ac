// SPDX-License-Identifier: BSD-3-Clause
#include "optim/closure/vectors.hpp"

#include <torch/types.h>

namespace lockstep::optim {

// The operations refuse empty lists.

Vector sum(const Vector& a, double factor, const Vector& b) {
  return a.empty() ? Vector() : at::_foreach_add(a, b, factor);
}

Vector product(const Vector& a, double factor) { return a.empty() ? Vector() : at::_foreach_mul(a, factor); }

Vector signs(const Vector& a) { return a.empty() ? Vector() : at::_foreach_sign(a); }

void add(const Vector& target, double factor, const Vector& values) {
  if (!target.empty()) at::_foreach_add_(target, values, factor);
}

void assign(const Vector& target, const Vector& from) {
  if (!target.empty()) at::_foreach_copy_(target, from);
}

}  // namespace lockstep::optim
