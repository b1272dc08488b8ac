// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include "core/numbers/at_level.hpp"
#include "optim/rules/coefficients.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

template <class T>
LOCKSTEP_INLINE void update(const AdamaxCoefficients& c, const ElementRange<T>& range) {
  const auto sign = static_cast<T>(c.sign);
  const auto l2_coefficient = static_cast<T>(c.l2_coefficient);
  const auto step_size = static_cast<T>(c.step_size);
  const auto take1 = static_cast<T>(1 - c.beta1);
  const auto beta2 = static_cast<T>(c.beta2);
  const auto eps = static_cast<T>(c.eps);
  T* __restrict parameter = range.parameter;
  const T* __restrict gradient = range.gradient;
  T* __restrict mean = range.state[0];
  T* __restrict largest = range.state[1];
  const std::int64_t count = range.count;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = sign * gradient[i] + l2_coefficient * parameter[i];
    mean[i] += take1 * (g - mean[i]);
    const T faded = beta2 * largest[i];
    const T magnitude = std::abs(g) + eps;
    largest[i] = faded < magnitude ? magnitude : faded;
    parameter[i] -= step_size * (mean[i] / largest[i]);
  }
}

}  // namespace

AdamaxCoefficients adamax_coefficients(const Options& options, std::int64_t step) {
  const GradientTerms terms = gradient_terms(options, /*is_decoupled=*/false);
  return {.sign = terms.sign,
          .l2_coefficient = terms.l2_coefficient,
          .step_size = options.at("lr") / bias_correction(options.at("beta1"), step),
          .beta1 = options.at("beta1"),
          .beta2 = options.at("beta2"),
          .eps = options.at("eps")};
}

namespace {

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
          .help = "Adamax: Adam with the infinity norm",
          .keys = {betas_key(), eps_key()},
          .read = read,
          .state_names = state_names,
          .kind = ElementRule{.coefficients = erased<adamax_coefficients>,
                              .update32 = erased<at_level<update<float>>>,
                              .update64 = erased<at_level<update<double>>>,
                              .update_tensors = update_adamax_tensors}};
}

}  // namespace lockstep::optim
