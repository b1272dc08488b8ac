// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include "core/numbers/at_level.hpp"
#include "optim/rules/coefficients.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

/// @tparam kDivides  by the root of the mean square, once that is known well enough
template <bool kDivides, class T>
LOCKSTEP_INLINE void update_elements(const RAdamCoefficients& c, const ElementRange<T>& range) {
  const auto sign = static_cast<T>(c.sign);
  const auto l2_coefficient = static_cast<T>(c.l2_coefficient);
  const auto decay_factor = static_cast<T>(c.decay_factor);
  const auto take1 = static_cast<T>(1 - c.beta1);
  const auto beta2 = static_cast<T>(c.beta2);
  const auto take2 = static_cast<T>(1 - c.beta2);
  const auto eps = static_cast<T>(c.eps);
  const auto step_size = static_cast<T>(c.step_size);
  T* __restrict parameter = range.parameter;
  const T* __restrict gradient = range.gradient;
  T* __restrict mean = range.state[0];
  T* __restrict square = range.state[1];
  const std::int64_t count = range.count;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = sign * gradient[i] + l2_coefficient * parameter[i];
    mean[i] += take1 * (g - mean[i]);
    square[i] = beta2 * square[i] + take2 * g * g;
    T change = mean[i];
    if constexpr (kDivides) change /= std::sqrt(square[i]) + eps;
    parameter[i] = decay_factor * parameter[i] - step_size * change;
  }
}

template <class T>
void update(const RAdamCoefficients& c, const ElementRange<T>& range) {
  c.is_rectified ? at_level<update_elements<true, T>>(c, range) : at_level<update_elements<false, T>>(c, range);
}

/// The rectification that the variance of the mean square allows of a step (equations 4 to 6 and algorithm 2 of the
/// paper).
struct Rectification {
  bool is_rectified = false;  ///< the variance is finite
  double factor = 1;
};

Rectification rectification(double beta2, std::int64_t step) {
  const auto t = static_cast<double>(step);
  const double limit = 2 / (1 - beta2) - 1;
  const double length = limit - 2 * t * std::pow(beta2, t) / bias_correction(beta2, step);
  if (!(length > 5)) return {};
  return {.is_rectified = true,
          .factor = std::sqrt((length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length))};
}

}  // namespace

RAdamCoefficients radam_coefficients(const Options& options, std::int64_t step) {
  const GradientTerms terms = gradient_terms(options, options.at("decoupled_weight_decay") != 0);
  const Rectification rectified = rectification(options.at("beta2"), step);
  double step_size = options.at("lr") / bias_correction(options.at("beta1"), step);
  if (rectified.is_rectified) {
    step_size *= rectified.factor * std::sqrt(bias_correction(options.at("beta2"), step));
  }
  return {.sign = terms.sign,
          .l2_coefficient = terms.l2_coefficient,
          .decay_factor = terms.decay_factor,
          .beta1 = options.at("beta1"),
          .beta2 = options.at("beta2"),
          .eps = options.at("eps"),
          .step_size = step_size,
          .is_rectified = rectified.is_rectified};
}

namespace {

Options read(const Section& optim) {
  Options options;
  read_betas(optim, options);
  read_numbers(optim, options, {"eps"});
  read_flags(optim, options, {"decoupled_weight_decay"});
  return options;
}

std::vector<std::string> state_names(const Options&) { return {"exp_avg", "exp_avg_sq"}; }

}  // namespace

Rule radam_rule() {
  return {.name = "radam",
          .help = "RAdam: rectified Adam, which needs no warm-up",
          .keys = {betas_key(), eps_key(), decoupled_weight_decay_key()},
          .read = read,
          .state_names = state_names,
          .kind = ElementRule{.coefficients = erased<radam_coefficients>,
                              .update32 = erased<update<float>>,
                              .update64 = erased<update<double>>,
                              .update_tensors = update_radam_tensors}};
}

}  // namespace lockstep::optim
