// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include "kernel.hpp"
#include "options.hpp"
#include "rules.hpp"

namespace lockstep::optim {

namespace {

enum : std::size_t { kSign, kPull, kKeep, kBeta1, kBeta2, kEps, kStepSize, kIsRectified };

/// @tparam kDivides  by the root of the mean square, once that is known well enough
template <bool kDivides, class T>
LOCKSTEP_VECTORISED void update_elements(const Coefficients& c, const Stretch<T>& stretch) {
  const auto sign = static_cast<T>(c[kSign]);
  const auto pull = static_cast<T>(c[kPull]);
  const auto keep = static_cast<T>(c[kKeep]);
  const auto take1 = static_cast<T>(1 - c[kBeta1]);
  const auto beta2 = static_cast<T>(c[kBeta2]);
  const auto take2 = static_cast<T>(1 - c[kBeta2]);
  const auto eps = static_cast<T>(c[kEps]);
  const auto step_size = static_cast<T>(c[kStepSize]);
  T* __restrict parameter = stretch.parameter;
  const T* __restrict gradient = stretch.gradient;
  T* __restrict mean = stretch.state[0];
  T* __restrict square = stretch.state[1];
  const std::int64_t count = stretch.count;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = sign * gradient[i] + pull * parameter[i];
    mean[i] += take1 * (g - mean[i]);
    square[i] = beta2 * square[i] + take2 * g * g;
    T change = mean[i];
    if constexpr (kDivides) change /= std::sqrt(square[i]) + eps;
    parameter[i] = keep * parameter[i] - step_size * change;
  }
}

template <class T>
void update(const Coefficients& c, const Stretch<T>& stretch) {
  c[kIsRectified] != 0 ? update_elements<true, T>(c, stretch) : update_elements<false, T>(c, stretch);
}

/// What the variance of the mean square allows of a step (equations 4 to 6 and algorithm 2 of the paper).
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

Coefficients coefficients(const Options& options, std::int64_t step) {
  const GradientTerms terms = gradient_terms(options, options.at("decoupled_weight_decay") != 0);
  const Rectification rectified = rectification(options.at("beta2"), step);
  Coefficients c{};
  c[kSign] = terms.sign;
  c[kPull] = terms.pull;
  c[kKeep] = terms.keep;
  c[kBeta1] = options.at("beta1");
  c[kBeta2] = options.at("beta2");
  c[kEps] = options.at("eps");
  c[kIsRectified] = rectified.is_rectified ? 1 : 0;
  c[kStepSize] = options.at("lr") / bias_correction(options.at("beta1"), step);
  if (rectified.is_rectified) {
    c[kStepSize] *= rectified.factor * std::sqrt(bias_correction(options.at("beta2"), step));
  }
  return c;
}

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
          .help = "Adam that begins without its divisor, until that is known well: needs no warm-up",
          .keys = {betas_key(), eps_key(), decoupled_weight_decay_key()},
          .read = read,
          .state_names = state_names,
          .coefficients = coefficients,
          .update32 = update<float>,
          .update64 = update<double>};
}

}  // namespace lockstep::optim
