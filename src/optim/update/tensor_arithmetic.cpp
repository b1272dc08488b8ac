// SPDX-License-Identifier: BSD-3-Clause
// The arithmetic of rules for tensors. On a CPU, results have the same bits whether a coefficient is live or not.
#include <torch/types.h>

#include "optim/rules/arithmetic.hpp"

namespace lockstep::optim {

namespace {

bool is_known(const Coefficient& c, double value) { return c.live == nullptr && c.value == value; }

}  // namespace

at::Tensor times(const Coefficient& c, const at::Tensor& x) {
  if (is_known(c, 1)) return x;
  return c.live != nullptr ? x.mul(*c.live) : x.mul(c.value);
}

at::Tensor divided(const at::Tensor& x, const Coefficient& c) {
  if (is_known(c, 1)) return x;
  return c.live != nullptr ? x.div(*c.live) : x.div(c.value);
}

at::Tensor increased(const at::Tensor& x, const Coefficient& c) {
  if (is_known(c, 0)) return x;
  return c.live != nullptr ? x.add(*c.live) : x.add(c.value);
}

at::Tensor plus(const at::Tensor& x, const Coefficient& c, const at::Tensor& y) {
  if (is_known(c, 0)) return x;
  return c.live != nullptr ? at::addcmul(x, y, *c.live) : at::add(x, y, c.value);
}

at::Tensor minus(const at::Tensor& x, const Coefficient& c, const at::Tensor& y) {
  return c.live != nullptr ? at::addcmul(x, y, *c.live, -1) : at::sub(x, y, c.value);
}

at::Tensor minus(const at::Tensor& x, const Coefficient& c, const Coefficient& d, const at::Tensor& y) {
  if (c.live == nullptr && d.live != nullptr) return at::addcmul(x, y, *d.live, -c.value);
  return minus(x, c, d * y);
}

at::Tensor mixed(const Coefficient&, const at::Tensor& x, const Coefficient& c, const at::Tensor& y) {
  return towards(x, y, c);
}

at::Tensor plus_square(const at::Tensor& x, const Coefficient& c, const at::Tensor& y) {
  return c.live != nullptr ? at::addcmul(x, y.mul(*c.live), y) : at::addcmul(x, y, y, c.value);
}

at::Tensor minus_product(const at::Tensor& x, const at::Tensor& y, const at::Tensor& z) {
  return at::addcmul(x, y, z, -1);
}

at::Tensor plus_quotient(const at::Tensor& x, const at::Tensor& y, const at::Tensor& z) { return at::addcdiv(x, y, z); }

at::Tensor minus_quotient(const at::Tensor& x, const Coefficient& c, const at::Tensor& y, const at::Tensor& z) {
  return c.live != nullptr ? at::addcdiv(x, y.mul(*c.live), z, -1) : at::addcdiv(x, y, z, -c.value);
}

at::Tensor towards(const at::Tensor& x, const at::Tensor& y, const Coefficient& c) {
  return c.live != nullptr ? x.lerp(y, *c.live) : x.lerp(y, c.value);
}

at::Tensor clamped(const at::Tensor& x, const Coefficient& min, const Coefficient& max) {
  return x.clamp(min.value, max.value);
}

at::Tensor by_sign(const at::Tensor& x, const Coefficient& above, const Coefficient& below) {
  return at::full_like(x, 1).masked_fill_(x > 0, above.value).masked_fill_(x < 0, below.value);
}

at::Tensor zero_where_negative(const at::Tensor& x, const at::Tensor& condition) {
  return x.masked_fill(condition < 0, 0);
}

at::Tensor agreement(const at::Tensor& x, const at::Tensor& y) { return x.mul(y).gt_(0); }

at::Tensor unless_zero(const at::Tensor& x, const at::Tensor& condition, const Coefficient& value) {
  return x.masked_fill_(condition == 0, value.value);
}

}  // namespace lockstep::optim
