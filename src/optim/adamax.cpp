// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include "kernel.hpp"
#include "options.hpp"
#include "rules.hpp"

namespace lockstep::optim {

namespace {

enum : std::size_t { kSign, kPull, kStepSize, kBeta1, kBeta2, kEps };

template <class T>
LOCKSTEP_VECTORISED void update(const Coefficients& c, const Stretch<T>& stretch) {
  const auto sign = static_cast<T>(c[kSign]);
  const auto pull = static_cast<T>(c[kPull]);
  const auto step_size = static_cast<T>(c[kStepSize]);
  const auto take1 = static_cast<T>(1 - c[kBeta1]);
  const auto beta2 = static_cast<T>(c[kBeta2]);
  const auto eps = static_cast<T>(c[kEps]);
  T* __restrict parameter = stretch.parameter;
  const T* __restrict gradient = stretch.gradient;
  T* __restrict mean = stretch.state[0];
  T* __restrict largest = stretch.state[1];
  const std::int64_t count = stretch.count;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = sign * gradient[i] + pull * parameter[i];
    mean[i] += take1 * (g - mean[i]);
    const T faded = beta2 * largest[i];
    const T magnitude = std::abs(g) + eps;
    largest[i] = faded < magnitude ? magnitude : faded;
    parameter[i] -= step_size * (mean[i] / largest[i]);
  }
}

Coefficients coefficients(const Options& options, std::int64_t step) {
  const GradientTerms terms = gradient_terms(options, /*is_decoupled=*/false);
  Coefficients c{};
  c[kSign] = terms.sign;
  c[kPull] = terms.pull;
  c[kStepSize] = options.at("lr") / bias_correction(options.at("beta1"), step);
  c[kBeta1] = options.at("beta1");
  c[kBeta2] = options.at("beta2");
  c[kEps] = options.at("eps");
  return c;
}

Options read(const Section& optim) {
  Options options;
  read_betas(optim, options);
  read_numbers(optim, options, {"eps"});
  return options;
}

std::vector<std::string> state_names(const Options&) { return {"exp_avg", "exp_inf"}; }

}  // namespace

Rule adamax_rule() {
  return {.name = "adamax",
          .help = "Adam that divides by the largest magnitude of late",
          .keys = {betas_key(), eps_key()},
          .read = read,
          .state_names = state_names,
          .coefficients = coefficients,
          .update32 = update<float>,
          .update64 = update<double>};
}

}  // namespace lockstep::optim
