// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <cmath>

#include "core/numbers/at_level.hpp"
#include "optim/rules/coefficients.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

/// @tparam kAverages  the average moves by a share; before, it is the parameter itself
template <bool kAverages, class T>
LOCKSTEP_INLINE void update_elements(const AsgdCoefficients& c, const ElementRange<T>& range) {
  const auto sign = static_cast<T>(c.sign);
  const auto l2_coefficient = static_cast<T>(c.l2_coefficient);
  const auto decay_factor = static_cast<T>(c.decay_factor);
  const auto step_size = static_cast<T>(c.step_size);
  const auto share = static_cast<T>(c.average_share);
  T* __restrict parameter = range.parameter;
  const T* __restrict gradient = range.gradient;
  T* __restrict average = range.state[0];
  const std::int64_t count = range.count;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = sign * gradient[i] + l2_coefficient * parameter[i];
    parameter[i] = decay_factor * parameter[i] - step_size * g;
    if constexpr (kAverages) {
      average[i] += share * (parameter[i] - average[i]);
    } else {
      average[i] = parameter[i];
    }
  }
}

template <class T>
void update(const AsgdCoefficients& c, const ElementRange<T>& range) {
  c.average_share != 1 ? at_level<update_elements<true, T>>(c, range) : at_level<update_elements<false, T>>(c, range);
}

}  // namespace

/// The step size and the share of the average follow from the updates before this one.
AsgdCoefficients asgd_coefficients(const Options& options, std::int64_t step) {
  const GradientTerms terms = gradient_terms(options, /*is_decoupled=*/false);
  const double lr = options.at("lr");
  const double lambd = options.at("lambd");
  const auto before = static_cast<double>(step - 1);
  const double step_size = lr / std::pow(1 + lambd * lr * before, options.at("eta_power"));
  return {.sign = terms.sign,
          .l2_coefficient = terms.l2_coefficient,
          .decay_factor = 1 - lambd * step_size,
          .step_size = step_size,
          .average_share = 1 / std::max(1.0, before - options.at("t0"))};
}

namespace {

Options read(const Section& optim) {
  Options options;
  read_numbers(optim, options, {"lambd", "eta_power", "t0"});
  return options;
}

std::vector<std::string> state_names(const Options&) { return {"ax"}; }

}  // namespace

Rule asgd_rule() {
  return {.name = "asgd",
          .help = "Averaged SGD; the average of the parameters is the state 'ax'",
          .keys = {keys::real("optim.lambd", "0.0001", "asgd: decay term", 0),
                   keys::real("optim.eta_power", "0.75", "asgd: exponent of the step size decay"),
                   keys::real("optim.t0", "1000000", "asgd: number of updates before averaging starts", 0)},
          .read = read,
          .state_names = state_names,
          .kind = ElementRule{.coefficients = erased<asgd_coefficients>,
                              .update32 = erased<update<float>>,
                              .update64 = erased<update<double>>,
                              .update_tensors = update_asgd_tensors}};
}

}  // namespace lockstep::optim
