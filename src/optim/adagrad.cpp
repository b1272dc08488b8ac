// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include "kernel.hpp"
#include "options.hpp"
#include "rules.hpp"

namespace lockstep::optim {

namespace {

enum : std::size_t { kSign, kPull, kStepSize, kEps, kKept, kStart };

template <class T>
LOCKSTEP_VECTORISED void update(const Coefficients& c, const Stretch<T>& stretch) {
  const auto sign = static_cast<T>(c[kSign]);
  const auto pull = static_cast<T>(c[kPull]);
  const auto step_size = static_cast<T>(c[kStepSize]);
  const auto eps = static_cast<T>(c[kEps]);
  const auto kept = static_cast<T>(c[kKept]);
  const auto start = static_cast<T>(c[kStart]);
  T* __restrict parameter = stretch.parameter;
  const T* __restrict gradient = stretch.gradient;
  T* __restrict sum = stretch.state[0];
  const std::int64_t count = stretch.count;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = sign * gradient[i] + pull * parameter[i];
    sum[i] = (kept * sum[i] + start) + g * g;
    parameter[i] -= step_size * (g / (std::sqrt(sum[i]) + eps));
  }
}

Coefficients coefficients(const Options& options, std::int64_t step) {
  const GradientTerms terms = gradient_terms(options, /*is_decoupled=*/false);
  Coefficients c{};
  c[kSign] = terms.sign;
  c[kPull] = terms.pull;
  c[kStepSize] = options.at("lr") / (1 + static_cast<double>(step - 1) * options.at("lr_decay"));
  c[kEps] = options.at("eps");
  // The first update does not read the stored sum: in older checkpoints it is 0 until then.
  const bool is_first = step == 1;
  c[kKept] = is_first ? 0 : 1;
  c[kStart] = is_first ? options.at("initial_accumulator_value") : 0;
  return c;
}

Options read(const Section& optim) {
  Options options;
  read_numbers(optim, options, {"eps", "lr_decay", "initial_accumulator_value"});
  return options;
}

std::vector<std::string> state_names(const Options&) { return {"sum"}; }

double initial_state(const Options& options, std::size_t) { return options.at("initial_accumulator_value"); }

}  // namespace

Rule adagrad_rule() {
  return {.name = "adagrad",
          .help = "divides by the root of the sum of all squared gradients",
          .keys = {eps_key(),
                   {.name = "optim.lr_decay",
                    .type = KeyType::real,
                    .default_value = "0",
                    .help = "adagrad: divides lr by 1 + lr_decay * updates before this one",
                    .min = 0},
                   {.name = "optim.initial_accumulator_value",
                    .type = KeyType::real,
                    .default_value = "0",
                    .help = "adagrad: where the sums of squares begin",
                    .min = 0}},
          .read = read,
          .state_names = state_names,
          .coefficients = coefficients,
          .update32 = update<float>,
          .update64 = update<double>,
          .initial_state = initial_state};
}

}  // namespace lockstep::optim
