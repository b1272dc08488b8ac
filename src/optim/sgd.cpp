// SPDX-License-Identifier: BSD-3-Clause
#include "kernel.hpp"
#include "options.hpp"
#include "rules.hpp"

namespace lockstep::optim {

namespace {

template <class T>
struct Factors {
  T sign;  ///< of the gradient: -1 to maximize
  T lr;
  T momentum;
  T add;  ///< share of the gradient that enters the momentum buffer
  T weight_decay;
  bool nesterov;
};

template <class T>
LOCKSTEP_VECTORISED void update_plain(T* __restrict parameter, const T* __restrict gradient, std::int64_t count,
                                      Factors<T> c) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T decayed = c.sign * gradient[i] + c.weight_decay * parameter[i];
    parameter[i] -= c.lr * decayed;
  }
}

template <class T>
LOCKSTEP_VECTORISED void update_with_momentum(T* __restrict parameter, const T* __restrict gradient,
                                              T* __restrict buffer, std::int64_t count, Factors<T> c) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T decayed = c.sign * gradient[i] + c.weight_decay * parameter[i];
    const T velocity = c.momentum * buffer[i] + c.add * decayed;
    buffer[i] = velocity;
    parameter[i] -= c.lr * (c.nesterov ? decayed + c.momentum * velocity : velocity);
  }
}

enum : std::size_t { kSign, kLr, kMomentum, kAdd, kWeightDecay, kNesterov };

Coefficients coefficients(const Options& options, std::int64_t step) {
  // The first update fills the (still zero) buffer with the whole gradient: dampening begins with the second.
  const double add = step == 1 ? 1.0 : 1.0 - options.at("dampening");
  Coefficients c{};
  c[kSign] = options.at("maximize") != 0 ? -1 : 1;
  c[kLr] = options.at("lr");
  c[kMomentum] = options.at("momentum");
  c[kAdd] = add;
  c[kWeightDecay] = options.at("weight_decay");
  c[kNesterov] = options.at("nesterov");
  return c;
}

template <class T>
void update(const Coefficients& c, const Stretch<T>& stretch) {
  const Factors<T> factors{.sign = static_cast<T>(c[kSign]),
                           .lr = static_cast<T>(c[kLr]),
                           .momentum = static_cast<T>(c[kMomentum]),
                           .add = static_cast<T>(c[kAdd]),
                           .weight_decay = static_cast<T>(c[kWeightDecay]),
                           .nesterov = c[kNesterov] != 0};
  if (c[kMomentum] == 0) {
    update_plain(stretch.parameter, stretch.gradient, stretch.count, factors);
  } else {
    update_with_momentum(stretch.parameter, stretch.gradient, stretch.state[0], stretch.count, factors);
  }
}

Options read(const Section& optim) {
  Options options;
  read_momentum(optim, options);
  return options;
}

std::vector<std::string> state_names(const Options& options) {
  if (options.at("momentum") == 0) return {};
  return {"momentum_buffer"};
}

}  // namespace

Rule sgd_rule() {
  return {.name = "sgd",
          .help = "gradient descent with optional momentum, dampening and Nesterov's look-ahead",
          .keys = momentum_keys(),
          .read = read,
          .state_names = state_names,
          .coefficients = coefficients,
          .update32 = update<float>,
          .update64 = update<double>};
}

}  // namespace lockstep::optim
