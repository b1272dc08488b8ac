// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "optim/rules/element_rule.hpp"

namespace lockstep::optim {

/// Gradient descent with or without momentum: variants of the rules that end with it.
enum Momentum : unsigned { kNoMomentum, kHeavyBall, kNesterov };

inline Momentum momentum_of(const Options& options) {
  if (options.at("momentum") == 0) return kNoMomentum;
  return options.at("nesterov") == 0 ? kHeavyBall : kNesterov;
}

/// The share of the gradient that enters the momentum buffer. The first update fills the (still zero) buffer with the
/// whole gradient: dampening begins with the second.
inline double gradient_share(const Options& options, std::int64_t step) {
  return step == 1 ? 1 : 1 - options.at("dampening");
}

/// Moves the parameter, and the momentum buffer, which is the first state.
template <unsigned kMomentum, class T>
LOCKSTEP_INLINE void descend(Element<T>& e, const T& gradient, const Coefficient& lr, const Coefficient& momentum,
                             const Coefficient& share) {
  if constexpr (kMomentum == kNoMomentum) {
    e.parameter = minus(e.parameter, lr, gradient);
  } else {
    e.state[0] = plus(momentum * e.state[0], share, gradient);
    if constexpr (kMomentum == kHeavyBall) e.parameter = minus(e.parameter, lr, e.state[0]);
    if constexpr (kMomentum == kNesterov) e.parameter = minus(e.parameter, lr, plus(gradient, momentum, e.state[0]));
  }
}

}  // namespace lockstep::optim
