// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include "kernel.hpp"
#include "options.hpp"
#include "rules.hpp"

namespace lockstep::optim {

namespace {

enum : std::size_t { kSign, kPull, kKeep, kBeta1, kBeta2, kCorrection2, kEps, kGradientStep, kMeanStep };

template <class T>
LOCKSTEP_VECTORISED void update(const Coefficients& c, const Stretch<T>& stretch) {
  const auto sign = static_cast<T>(c[kSign]);
  const auto pull = static_cast<T>(c[kPull]);
  const auto keep = static_cast<T>(c[kKeep]);
  const auto take1 = static_cast<T>(1 - c[kBeta1]);
  const auto beta2 = static_cast<T>(c[kBeta2]);
  const auto take2 = static_cast<T>(1 - c[kBeta2]);
  const auto correction2 = static_cast<T>(c[kCorrection2]);
  const auto eps = static_cast<T>(c[kEps]);
  const auto gradient_step = static_cast<T>(c[kGradientStep]);
  const auto mean_step = static_cast<T>(c[kMeanStep]);
  T* __restrict parameter = stretch.parameter;
  const T* __restrict gradient = stretch.gradient;
  T* __restrict mean = stretch.state[0];
  T* __restrict square = stretch.state[1];
  const std::int64_t count = stretch.count;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = sign * gradient[i] + pull * parameter[i];
    mean[i] += take1 * (g - mean[i]);
    square[i] = beta2 * square[i] + take2 * g * g;
    const T denominator = std::sqrt(square[i] / correction2) + eps;
    parameter[i] = keep * parameter[i] - gradient_step * (g / denominator) - mean_step * (mean[i] / denominator);
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

Coefficients coefficients(const Options& options, std::int64_t step) {
  const GradientTerms terms = gradient_terms(options, options.at("decoupled_weight_decay") != 0);
  const double momentum = momentum_at(options, step);
  const double next_momentum = momentum_at(options, step + 1);
  const double product = momentum_product(options, step);
  Coefficients c{};
  c[kSign] = terms.sign;
  c[kPull] = terms.pull;
  c[kKeep] = terms.keep;
  c[kBeta1] = options.at("beta1");
  c[kBeta2] = options.at("beta2");
  c[kCorrection2] = bias_correction(options.at("beta2"), step);
  c[kEps] = options.at("eps");
  c[kGradientStep] = options.at("lr") * (1 - momentum) / (1 - product);
  c[kMeanStep] = options.at("lr") * next_momentum / (1 - product * next_momentum);
  return c;
}

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
          .help = "Adam that looks ahead along its mean",
          .keys = {betas_key(),
                   eps_key(),
                   decoupled_weight_decay_key(),
                   {.name = "optim.momentum_decay",
                    .type = KeyType::real,
                    .default_value = "0.004",
                    .help = "nadam: how fast the momentum rises to beta1",
                    .min = 0}},
          .read = read,
          .state_names = state_names,
          .coefficients = coefficients,
          .update32 = update<float>,
          .update64 = update<double>};
}

}  // namespace lockstep::optim
