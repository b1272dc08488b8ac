// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include "core/numbers/at_level.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

template <class T>
struct AdamCoefficients {
  T sign;            ///< multiplies the gradient: 1, or -1 to maximize
  T l2_coefficient;  ///< weight decay that is added to the gradient
  T decay_factor;    ///< 1 - lr * weight_decay where it is decoupled
  T step_size;       ///< lr / (1 - beta1^step)
  T take1;           ///< 1 - beta1
  T beta2;
  T take2;            ///< 1 - beta2
  T root_correction;  ///< sqrt(1 - beta2^step)
  T eps;
  bool is_amsgrad;
};

template <class T>
AdamCoefficients<T> rounded(const AdamCoefficients<double>& c) {
  return {.sign = static_cast<T>(c.sign),
          .l2_coefficient = static_cast<T>(c.l2_coefficient),
          .decay_factor = static_cast<T>(c.decay_factor),
          .step_size = static_cast<T>(c.step_size),
          .take1 = static_cast<T>(c.take1),
          .beta2 = static_cast<T>(c.beta2),
          .take2 = static_cast<T>(c.take2),
          .root_correction = static_cast<T>(c.root_correction),
          .eps = static_cast<T>(c.eps),
          .is_amsgrad = c.is_amsgrad};
}

/// @tparam kHasL2  Adam with weight decay; else the gradient is taken as it is
template <bool kHasL2, bool kIsAmsgrad, class T>
LOCKSTEP_INLINE void update_elements(T* __restrict parameter, const T* __restrict gradient, T* __restrict mean,
                                     T* __restrict square, T* __restrict max_square, std::int64_t count,
                                     AdamCoefficients<T> c) {
  for (std::int64_t i = 0; i < count; ++i) {
    T g = c.sign * gradient[i];
    if constexpr (kHasL2) g += c.l2_coefficient * parameter[i];
    mean[i] += c.take1 * (g - mean[i]);
    square[i] = c.beta2 * square[i] + c.take2 * g * g;
    T divisor = square[i];
    if constexpr (kIsAmsgrad) {
      max_square[i] = max_square[i] < square[i] ? square[i] : max_square[i];
      divisor = max_square[i];
    }
    const T denominator = std::sqrt(divisor) / c.root_correction + c.eps;
    parameter[i] = c.decay_factor * parameter[i] - c.step_size * (mean[i] / denominator);
  }
}

template <bool kIsDecoupled>
AdamCoefficients<double> coefficients(const Options& options, std::int64_t step) {
  const GradientTerms terms = gradient_terms(options, kIsDecoupled);
  return {.sign = terms.sign,
          .l2_coefficient = terms.l2_coefficient,
          .decay_factor = terms.decay_factor,
          .step_size = options.at("lr") / bias_correction(options.at("beta1"), step),
          .take1 = 1 - options.at("beta1"),
          .beta2 = options.at("beta2"),
          .take2 = 1 - options.at("beta2"),
          .root_correction = std::sqrt(bias_correction(options.at("beta2"), step)),
          .eps = options.at("eps"),
          .is_amsgrad = options.at("amsgrad") != 0};
}

template <class T>
void update(const AdamCoefficients<double>& c, const ElementRange<T>& range) {
  T* const* state = range.state;
  const auto run = [&](auto* elements) {
    elements(range.parameter, range.gradient, state[0], state[1], c.is_amsgrad ? state[2] : nullptr, range.count,
             rounded<T>(c));
  };
  if (c.l2_coefficient != 0) {
    run(c.is_amsgrad ? at_level<update_elements<true, true, T>> : at_level<update_elements<true, false, T>>);
  } else {
    run(c.is_amsgrad ? at_level<update_elements<false, true, T>> : at_level<update_elements<false, false, T>>);
  }
}

Options read(const Section& optim) {
  Options options;
  read_betas(optim, options);
  read_numbers(optim, options, {"eps"});
  read_flags(optim, options, {"amsgrad"});
  return options;
}

std::vector<std::string> state_names(const Options& options) {
  if (options.at("amsgrad") == 0) return {"exp_avg", "exp_avg_sq"};
  return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
}

KeySpecs keys() { return {betas_key(), eps_key(), amsgrad_key()}; }

}  // namespace

Rule adam_rule() {
  return {.name = "adam",
          .help = "Adam",
          .keys = keys(),
          .read = read,
          .state_names = state_names,
          .kind = ElementRule{.coefficients = erased<coefficients<false>>,
                              .update32 = erased<update<float>>,
                              .update64 = erased<update<double>>,
                              .update_tensors = update_adam_tensors}};
}

Rule adamw_rule() {
  return {.name = "adamw",
          .help = "Adam with decoupled weight decay",
          .keys = keys(),
          .read = read,
          .state_names = state_names,
          .kind = ElementRule{.coefficients = erased<coefficients<true>>,
                              .update32 = erased<update<float>>,
                              .update64 = erased<update<double>>,
                              .update_tensors = update_adamw_tensors}};
}

}  // namespace lockstep::optim
