// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include "kernel.hpp"
#include "options.hpp"
#include "rules.hpp"

namespace lockstep::optim {

namespace {

enum : std::size_t { kSign, kPull, kKeep, kStepSize, kBeta1, kBeta2, kRootCorrection, kEps, kAmsgrad };

template <class T>
struct Factors {
  T sign;       ///< of the gradient: -1 to maximize
  T pull;       ///< weight decay that is added to the gradient
  T keep;       ///< 1 - lr * weight_decay where it is decoupled
  T step_size;  ///< lr / (1 - beta1^step)
  T take1;      ///< 1 - beta1
  T beta2;
  T take2;            ///< 1 - beta2
  T root_correction;  ///< sqrt(1 - beta2^step)
  T eps;
};

/// @tparam kPulls  Adam with weight decay; else the gradient is taken as it is
template <bool kPulls, bool kIsAmsgrad, class T>
LOCKSTEP_VECTORISED void update_elements(T* __restrict parameter, const T* __restrict gradient, T* __restrict mean,
                                         T* __restrict square, T* __restrict max_square, std::int64_t count,
                                         Factors<T> c) {
  for (std::int64_t i = 0; i < count; ++i) {
    T g = c.sign * gradient[i];
    if constexpr (kPulls) g += c.pull * parameter[i];
    mean[i] += c.take1 * (g - mean[i]);
    square[i] = c.beta2 * square[i] + c.take2 * g * g;
    T divisor = square[i];
    if constexpr (kIsAmsgrad) {
      max_square[i] = max_square[i] < square[i] ? square[i] : max_square[i];
      divisor = max_square[i];
    }
    const T denominator = std::sqrt(divisor) / c.root_correction + c.eps;
    parameter[i] = c.keep * parameter[i] - c.step_size * (mean[i] / denominator);
  }
}

Coefficients coefficients(const Options& options, std::int64_t step, bool is_decoupled) {
  const GradientTerms terms = gradient_terms(options, is_decoupled);
  Coefficients c{};
  c[kSign] = terms.sign;
  c[kPull] = terms.pull;
  c[kKeep] = terms.keep;
  c[kStepSize] = options.at("lr") / bias_correction(options.at("beta1"), step);
  c[kBeta1] = options.at("beta1");
  c[kBeta2] = options.at("beta2");
  c[kRootCorrection] = std::sqrt(bias_correction(options.at("beta2"), step));
  c[kEps] = options.at("eps");
  c[kAmsgrad] = options.at("amsgrad");
  return c;
}

template <class T>
void update(const Coefficients& c, const Stretch<T>& stretch) {
  const Factors<T> factors{.sign = static_cast<T>(c[kSign]),
                           .pull = static_cast<T>(c[kPull]),
                           .keep = static_cast<T>(c[kKeep]),
                           .step_size = static_cast<T>(c[kStepSize]),
                           .take1 = static_cast<T>(1 - c[kBeta1]),
                           .beta2 = static_cast<T>(c[kBeta2]),
                           .take2 = static_cast<T>(1 - c[kBeta2]),
                           .root_correction = static_cast<T>(c[kRootCorrection]),
                           .eps = static_cast<T>(c[kEps])};
  T* const* state = stretch.state;
  const bool is_amsgrad = c[kAmsgrad] != 0;
  const auto run = [&](auto* elements) {
    elements(stretch.parameter, stretch.gradient, state[0], state[1], is_amsgrad ? state[2] : nullptr, stretch.count,
             factors);
  };
  if (c[kPull] != 0) {
    run(is_amsgrad ? update_elements<true, true, T> : update_elements<true, false, T>);
  } else {
    run(is_amsgrad ? update_elements<false, true, T> : update_elements<false, false, T>);
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

Rule make_rule(const std::string& name, const std::string& help) {
  return {.name = name,
          .help = help,
          .keys = {betas_key(), eps_key(), amsgrad_key()},
          .read = read,
          .state_names = state_names,
          .coefficients = nullptr,
          .update32 = update<float>,
          .update64 = update<double>};
}

}  // namespace

Rule adam_rule() {
  Rule rule = make_rule("adam", "steps of a length that the mean and the mean square of the gradient decide");
  rule.coefficients = [](const Options& options, std::int64_t step) { return coefficients(options, step, false); };
  return rule;
}

Rule adamw_rule() {
  Rule rule = make_rule("adamw", "Adam with decoupled weight decay");
  rule.coefficients = [](const Options& options, std::int64_t step) { return coefficients(options, step, true); };
  return rule;
}

}  // namespace lockstep::optim
