// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include "kernel.hpp"
#include "options.hpp"
#include "rules.hpp"

namespace lockstep::optim {

namespace {

enum : std::size_t { kSign, kPull, kLr, kRho, kEps };

template <class T>
LOCKSTEP_VECTORISED void update(const Coefficients& c, const Stretch<T>& stretch) {
  const auto sign = static_cast<T>(c[kSign]);
  const auto pull = static_cast<T>(c[kPull]);
  const auto lr = static_cast<T>(c[kLr]);
  const auto rho = static_cast<T>(c[kRho]);
  const auto take = static_cast<T>(1 - c[kRho]);
  const auto eps = static_cast<T>(c[kEps]);
  T* __restrict parameter = stretch.parameter;
  const T* __restrict gradient = stretch.gradient;
  T* __restrict square = stretch.state[0];
  T* __restrict moved = stretch.state[1];
  const std::int64_t count = stretch.count;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = sign * gradient[i] + pull * parameter[i];
    square[i] = rho * square[i] + take * g * g;
    const T change = std::sqrt(moved[i] + eps) / std::sqrt(square[i] + eps) * g;
    moved[i] = rho * moved[i] + take * change * change;
    parameter[i] -= lr * change;
  }
}

Coefficients coefficients(const Options& options, std::int64_t) {
  const GradientTerms terms = gradient_terms(options, /*is_decoupled=*/false);
  Coefficients c{};
  c[kSign] = terms.sign;
  c[kPull] = terms.pull;
  c[kLr] = options.at("lr");
  c[kRho] = options.at("rho");
  c[kEps] = options.at("eps");
  return c;
}

Options read(const Section& optim) {
  Options options;
  read_numbers(optim, options, {"rho", "eps"});
  return options;
}

std::vector<std::string> state_names(const Options&) { return {"square_avg", "acc_delta"}; }

}  // namespace

Rule adadelta_rule() {
  return {.name = "adadelta",
          .help = "gives every change the unit of the parameter; lr is mostly 1",
          .keys = {eps_key(),
                   {.name = "optim.rho",
                    .type = KeyType::real,
                    .default_value = "0.9",
                    .help = "adadelta: decay rate of the mean squares",
                    .min = 0,
                    .max = 1}},
          .read = read,
          .state_names = state_names,
          .coefficients = coefficients,
          .update32 = update<float>,
          .update64 = update<double>};
}

}  // namespace lockstep::optim
