// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>

#include <cmath>

#include "core/numbers/at_level.hpp"
#include "optim/rules/coefficients.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

template <class T>
LOCKSTEP_INLINE void update(const NadamCoefficients& c, const ElementRange<T>& range) {
  const auto sign = static_cast<T>(c.sign);
  const auto l2_coefficient = static_cast<T>(c.l2_coefficient);
  const auto decay_factor = static_cast<T>(c.decay_factor);
  const auto take1 = static_cast<T>(1 - c.beta1);
  const auto beta2 = static_cast<T>(c.beta2);
  const auto take2 = static_cast<T>(1 - c.beta2);
  const auto correction2 = static_cast<T>(c.correction2);
  const auto eps = static_cast<T>(c.eps);
  const auto gradient_step = static_cast<T>(c.gradient_step);
  const auto mean_step = static_cast<T>(c.mean_step);
  T* __restrict parameter = range.parameter;
  const T* __restrict gradient = range.gradient;
  T* __restrict mean = range.state[0];
  T* __restrict square = range.state[1];
  const std::int64_t count = range.count;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = sign * gradient[i] + l2_coefficient * parameter[i];
    mean[i] += take1 * (g - mean[i]);
    square[i] = beta2 * square[i] + take2 * g * g;
    const T denominator = std::sqrt(square[i] / correction2) + eps;
    parameter[i] =
        decay_factor * parameter[i] - gradient_step * (g / denominator) - mean_step * (mean[i] / denominator);
  }
}

/// The momentum of one step: it rises from half of beta1 to beta1.
double momentum_at(const Options& options, std::int64_t step) {
  return options.at("beta1") * (1 - 0.5 * std::pow(0.96, static_cast<double>(step) * options.at("momentum_decay")));
}

/// The product of the momenta of steps 1 to `step`: a function of the step, so nothing need be kept. The source keeps
/// it in float32, so this rounds alike; below the last bit of 1 it does not count any more.
double momentum_product(const Options& options, std::int64_t step) {
  float product = 1;
  for (std::int64_t i = 1; i <= step && product > 1e-20F; ++i) {
    product *= static_cast<float>(momentum_at(options, i));
  }
  return product;
}

}  // namespace

NadamCoefficients nadam_coefficients(const Options& options, std::int64_t step) {
  const GradientTerms terms = gradient_terms(options, options.at("decoupled_weight_decay") != 0);
  const double momentum = momentum_at(options, step);
  const double next_momentum = momentum_at(options, step + 1);
  const double product = momentum_product(options, step);
  return {.sign = terms.sign,
          .l2_coefficient = terms.l2_coefficient,
          .decay_factor = terms.decay_factor,
          .beta1 = options.at("beta1"),
          .beta2 = options.at("beta2"),
          .correction2 = bias_correction(options.at("beta2"), step),
          .eps = options.at("eps"),
          .gradient_step = options.at("lr") * (1 - momentum) / (1 - product),
          .mean_step = options.at("lr") * next_momentum / (1 - product * next_momentum)};
}

namespace {

Options read(const Section& optim) {
  Options options;
  read_betas(optim, options);
  read_numbers(optim, options, {"eps", "momentum_decay"});
  read_flags(optim, options, {"decoupled_weight_decay"});
  return options;
}

std::vector<std::string> state_names(const Options&) { return {"exp_avg", "exp_avg_sq"}; }

}  // namespace

Rule nadam_rule() {
  return {.name = "nadam",
          .help = "NAdam: Adam with Nesterov momentum",
          .keys = {betas_key(), eps_key(), decoupled_weight_decay_key(),
                   keys::real("optim.momentum_decay", "0.004", "nadam: momentum decay", 0)},
          .read = read,
          .state_names = state_names,
          .kind = ElementRule{.coefficients = erased<nadam_coefficients>,
                              .update32 = erased<at_level<update<float>>>,
                              .update64 = erased<at_level<update<double>>>,
                              .update_tensors = update_nadam_tensors}};
}

}  // namespace lockstep::optim
