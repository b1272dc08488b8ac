// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>

#include "kernel.hpp"
#include "options.hpp"
#include "rules.hpp"

namespace lockstep::optim {

namespace {

enum : std::size_t { kSign, kPull, kKeep, kStepSize, kShare };

/// @tparam kAverages  the average moves by a share; before, it is the parameter itself
template <bool kAverages, class T>
LOCKSTEP_VECTORISED void update_elements(const Coefficients& c, const Stretch<T>& stretch) {
  const auto sign = static_cast<T>(c[kSign]);
  const auto pull = static_cast<T>(c[kPull]);
  const auto keep = static_cast<T>(c[kKeep]);
  const auto step_size = static_cast<T>(c[kStepSize]);
  const auto share = static_cast<T>(c[kShare]);
  T* __restrict parameter = stretch.parameter;
  const T* __restrict gradient = stretch.gradient;
  T* __restrict average = stretch.state[0];
  const std::int64_t count = stretch.count;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = sign * gradient[i] + pull * parameter[i];
    parameter[i] = keep * parameter[i] - step_size * g;
    if constexpr (kAverages) {
      average[i] += share * (parameter[i] - average[i]);
    } else {
      average[i] = parameter[i];
    }
  }
}

template <class T>
void update(const Coefficients& c, const Stretch<T>& stretch) {
  c[kShare] != 1 ? update_elements<true, T>(c, stretch) : update_elements<false, T>(c, stretch);
}

/// The step size and the share of the average follow from the updates before this one.
Coefficients coefficients(const Options& options, std::int64_t step) {
  const GradientTerms terms = gradient_terms(options, /*is_decoupled=*/false);
  const double lr = options.at("lr");
  const double lambd = options.at("lambd");
  const auto before = static_cast<double>(step - 1);
  Coefficients c{};
  c[kSign] = terms.sign;
  c[kPull] = terms.pull;
  c[kStepSize] = lr / std::pow(1 + lambd * lr * before, options.at("eta_power"));
  c[kKeep] = 1 - lambd * c[kStepSize];
  c[kShare] = 1 / std::max(1.0, before - options.at("t0"));
  return c;
}

Options read(const Section& optim) {
  Options options;
  read_numbers(optim, options, {"lambd", "eta_power", "t0"});
  return options;
}

std::vector<std::string> state_names(const Options&) { return {"ax"}; }

}  // namespace

Rule asgd_rule() {
  return {.name = "asgd",
          .help = "gradient descent that averages the parameters of late steps in its state 'ax'",
          .keys = {{.name = "optim.lambd",
                    .type = KeyType::real,
                    .default_value = "0.0001",
                    .help = "asgd: decay of the parameter and of the step size",
                    .min = 0},
                   {.name = "optim.eta_power",
                    .type = KeyType::real,
                    .default_value = "0.75",
                    .help = "asgd: power at which the step size falls"},
                   {.name = "optim.t0",
                    .type = KeyType::real,
                    .default_value = "1000000",
                    .help = "asgd: updates before averaging begins",
                    .min = 0}},
          .read = read,
          .state_names = state_names,
          .coefficients = coefficients,
          .update32 = update<float>,
          .update64 = update<double>};
}

}  // namespace lockstep::optim
