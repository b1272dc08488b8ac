// SPDX-License-Identifier: BSD-3-Clause
#include "core/numbers/at_level.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

template <class T>
struct SgdCoefficients {
  T sign;  ///< multiplies the gradient: 1, or -1 to maximize
  T lr;
  T momentum;
  T gradient_share;  ///< share of the gradient that enters the momentum buffer
  T l2_coefficient;  ///< weight decay that is added to the gradient
  bool is_nesterov;
};

template <class T>
SgdCoefficients<T> rounded(const SgdCoefficients<double>& c) {
  return {.sign = static_cast<T>(c.sign),
          .lr = static_cast<T>(c.lr),
          .momentum = static_cast<T>(c.momentum),
          .gradient_share = static_cast<T>(c.gradient_share),
          .l2_coefficient = static_cast<T>(c.l2_coefficient),
          .is_nesterov = c.is_nesterov};
}

template <class T>
LOCKSTEP_INLINE void update_plain(T* __restrict parameter, const T* __restrict gradient, std::int64_t count,
                                  SgdCoefficients<T> c) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T decayed = c.sign * gradient[i] + c.l2_coefficient * parameter[i];
    parameter[i] -= c.lr * decayed;
  }
}

template <class T>
LOCKSTEP_INLINE void update_with_momentum(T* __restrict parameter, const T* __restrict gradient, T* __restrict buffer,
                                          std::int64_t count, SgdCoefficients<T> c) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T decayed = c.sign * gradient[i] + c.l2_coefficient * parameter[i];
    const T velocity = c.momentum * buffer[i] + c.gradient_share * decayed;
    buffer[i] = velocity;
    parameter[i] -= c.lr * (c.is_nesterov ? decayed + c.momentum * velocity : velocity);
  }
}

SgdCoefficients<double> coefficients(const Options& options, std::int64_t step) {
  const GradientTerms terms = gradient_terms(options, /*is_decoupled=*/false);
  // The first update fills the (still zero) buffer with the whole gradient: dampening begins with the second.
  return {.sign = terms.sign,
          .lr = options.at("lr"),
          .momentum = options.at("momentum"),
          .gradient_share = step == 1 ? 1.0 : 1.0 - options.at("dampening"),
          .l2_coefficient = terms.l2_coefficient,
          .is_nesterov = options.at("nesterov") != 0};
}

template <class T>
void update(const SgdCoefficients<double>& c, const ElementRange<T>& range) {
  if (c.momentum == 0) {
    at_level<update_plain<T>>(range.parameter, range.gradient, range.count, rounded<T>(c));
  } else {
    at_level<update_with_momentum<T>>(range.parameter, range.gradient, range.state[0], range.count, rounded<T>(c));
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
          .help = "SGD with optional momentum, dampening and Nesterov momentum",
          .keys = momentum_keys(),
          .read = read,
          .state_names = state_names,
          .kind = ElementRule{.coefficients = erased<coefficients>,
                              .update32 = erased<update<float>>,
                              .update64 = erased<update<double>>,
                              .update_tensors = update_sgd_tensors}};
}

}  // namespace lockstep::optim
