// SPDX-License-Identifier: BSD-3-Clause
// The arithmetic in which rules are written once, for several types of numbers: float and double, for one element in a
// loop; at::Tensor, for all elements of an update or, in trust ratios, a number per row.
//
// A function for tensors is one launch and does not change its arguments, unless its comment says otherwise.
#pragma once

#include <lockstep/core/tensor.hpp>

#include <ATen/TensorOperators.h>

#include <cmath>
#include <concepts>

#include "core/numbers/processor_level.hpp"

namespace lockstep::optim {

struct Coefficient;
at::Tensor times(const Coefficient& c, const at::Tensor& x);
at::Tensor divided(const at::Tensor& x, const Coefficient& c);
at::Tensor increased(const at::Tensor& x, const Coefficient& c);

/// A number of a rule that is equal for all elements of a parameter.
struct Coefficient {
  double value = 0;
  bool changes = false;              ///< from step to step: it depends on the learning rate or counts updates
  const at::Tensor* live = nullptr;  ///< the value in the memory of the device: [], or one for each row of a stack

  constexpr Coefficient() = default;
  constexpr Coefficient(double number) : value(number) {}

  friend at::Tensor operator*(const Coefficient& c, const at::Tensor& x) { return times(c, x); }
  friend at::Tensor operator/(const at::Tensor& x, const Coefficient& c) { return divided(x, c); }
  friend at::Tensor operator+(const at::Tensor& x, const Coefficient& c) { return increased(x, c); }
};

constexpr Coefficient changing(double value) {
  Coefficient coefficient = value;
  coefficient.changes = true;
  return coefficient;
}

/// One element of a parameter with its gradient and states, or all elements of an update, in rows of a stack.
template <class T>
struct Element {
  T parameter;
  T gradient;
  T state[3];
};

// ---- numbers: the order of operations is that of the formulas

template <class T>
concept Real = std::floating_point<T>;

template <Real T>
LOCKSTEP_INLINE T rounded(const Coefficient& c) {
  return static_cast<T>(c.value);
}

LOCKSTEP_INLINE auto operator*(const Coefficient& c, Real auto x) { return rounded<decltype(x)>(c) * x; }
LOCKSTEP_INLINE auto operator/(Real auto x, const Coefficient& c) { return x / rounded<decltype(x)>(c); }
LOCKSTEP_INLINE auto operator+(Real auto x, const Coefficient& c) { return x + rounded<decltype(x)>(c); }
/// x + c * y
LOCKSTEP_INLINE auto plus(Real auto x, const Coefficient& c, Real auto y) { return x + c * y; }
/// x - c * y
LOCKSTEP_INLINE auto minus(Real auto x, const Coefficient& c, Real auto y) { return x - c * y; }
/// x - c * (d * y)
LOCKSTEP_INLINE auto minus(Real auto x, const Coefficient& c, const Coefficient& d, Real auto y) {
  return x - c * (d * y);
}
/// c * x + d * y
/// @param c  1 - d
LOCKSTEP_INLINE auto mixed(const Coefficient& c, Real auto x, const Coefficient& d, Real auto y) {
  return c * x + d * y;
}
/// x + c * y * y
LOCKSTEP_INLINE auto plus_square(Real auto x, const Coefficient& c, Real auto y) { return x + c * y * y; }
/// x - y * z
LOCKSTEP_INLINE auto minus_product(Real auto x, Real auto y, Real auto z) { return x - y * z; }
/// x + y / z
LOCKSTEP_INLINE auto plus_quotient(Real auto x, Real auto y, Real auto z) { return x + y / z; }
/// x - c * (y / z)
LOCKSTEP_INLINE auto minus_quotient(Real auto x, const Coefficient& c, Real auto y, Real auto z) {
  return x - c * (y / z);
}
/// x + c * (y - x)
LOCKSTEP_INLINE auto towards(Real auto x, Real auto y, const Coefficient& c) { return x + c * (y - x); }
LOCKSTEP_INLINE auto sqrt(Real auto x) { return std::sqrt(x); }
LOCKSTEP_INLINE auto abs(Real auto x) { return std::abs(x); }
LOCKSTEP_INLINE auto reciprocal(Real auto x) { return 1 / x; }
LOCKSTEP_INLINE auto maximum(Real auto x, Real auto y) { return x < y ? y : x; }
LOCKSTEP_INLINE auto minimum(Real auto x, Real auto y) { return y < x ? y : x; }
/// The limit, too, where x is a NaN.
LOCKSTEP_INLINE auto clamp_min(Real auto x, double limit) { return x > decltype(x)(limit) ? x : decltype(x)(limit); }
LOCKSTEP_INLINE auto clamp_max(Real auto x, double limit) { return x > decltype(x)(limit) ? decltype(x)(limit) : x; }
LOCKSTEP_INLINE auto clamped(Real auto x, const Coefficient& min, const Coefficient& max) {
  const auto raised = x < rounded<decltype(x)>(min) ? rounded<decltype(x)>(min) : x;
  return raised > rounded<decltype(x)>(max) ? rounded<decltype(x)>(max) : raised;
}
/// 1, -1, or `x` itself: a zero or a NaN.
LOCKSTEP_INLINE auto sign(Real auto x) { return x > 0 ? decltype(x)(1) : x < 0 ? decltype(x)(-1) : x; }
/// `above` where x > 0, `below` where x < 0, else 1. Five launches.
LOCKSTEP_INLINE auto by_sign(Real auto x, const Coefficient& above, const Coefficient& below) {
  using T = decltype(x);
  return x > 0 ? rounded<T>(above) : x < 0 ? rounded<T>(below) : T(1);
}
/// 0 where `condition` < 0, else x. Three launches.
LOCKSTEP_INLINE auto zero_where_negative(Real auto x, Real auto condition) {
  return condition < 0 ? decltype(x)(0) : x;
}
/// 1 where both have the same sign, else 0. Two launches.
LOCKSTEP_INLINE auto agreement(Real auto x, Real auto y) { return decltype(x)(x * y > 0 ? 1 : 0); }
/// `value` where `condition` is 0, else x. Two launches, which change x.
LOCKSTEP_INLINE auto unless_zero(Real auto x, Real auto condition, const Coefficient& value) {
  return condition == 0 ? rounded<decltype(x)>(value) : x;
}

// ---- tensors: the same, rounded in another order; coefficients of 1 or 0 are not applied. Functions with the names of
// LibTorch are those of LibTorch.

Tensor plus(const Tensor& x, const Coefficient& c, const Tensor& y);
Tensor minus(const Tensor& x, const Coefficient& c, const Tensor& y);
Tensor minus(const Tensor& x, const Coefficient& c, const Coefficient& d, const Tensor& y);
Tensor mixed(const Coefficient& c, const Tensor& x, const Coefficient& d, const Tensor& y);
Tensor plus_square(const Tensor& x, const Coefficient& c, const Tensor& y);
Tensor minus_product(const Tensor& x, const Tensor& y, const Tensor& z);
Tensor plus_quotient(const Tensor& x, const Tensor& y, const Tensor& z);
Tensor minus_quotient(const Tensor& x, const Coefficient& c, const Tensor& y, const Tensor& z);
Tensor towards(const Tensor& x, const Tensor& y, const Coefficient& c);
Tensor clamped(const Tensor& x, const Coefficient& min, const Coefficient& max);
Tensor by_sign(const Tensor& x, const Coefficient& above, const Coefficient& below);
Tensor zero_where_negative(const Tensor& x, const Tensor& condition);
Tensor agreement(const Tensor& x, const Tensor& y);
Tensor unless_zero(const Tensor& x, const Tensor& condition, const Coefficient& value);

}  // namespace lockstep::optim
