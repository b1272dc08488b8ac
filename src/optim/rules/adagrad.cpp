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
LOCKSTEP_INLINE void update(const AdagradCoefficients& c, const ElementRange<T>& range) {
  const auto sign = static_cast<T>(c.sign);
  const auto l2_coefficient = static_cast<T>(c.l2_coefficient);
  const auto step_size = static_cast<T>(c.step_size);
  const auto eps = static_cast<T>(c.eps);
  const auto sum_factor = static_cast<T>(c.sum_factor);
  const auto initial_sum = static_cast<T>(c.initial_sum);
  T* __restrict parameter = range.parameter;
  const T* __restrict gradient = range.gradient;
  T* __restrict sum = range.state[0];
  const std::int64_t count = range.count;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = sign * gradient[i] + l2_coefficient * parameter[i];
    sum[i] = (sum_factor * sum[i] + initial_sum) + g * g;
    parameter[i] -= step_size * (g / (std::sqrt(sum[i]) + eps));
  }
}

}  // namespace

AdagradCoefficients adagrad_coefficients(const Options& options, std::int64_t step) {
  const GradientTerms terms = gradient_terms(options, /*is_decoupled=*/false);
  // The first update does not read the stored sum: in older checkpoints it is 0 until then.
  const bool is_first = step == 1;
  return {.sign = terms.sign,
          .l2_coefficient = terms.l2_coefficient,
          .step_size = options.at("lr") / (1 + static_cast<double>(step - 1) * options.at("lr_decay")),
          .eps = options.at("eps"),
          .sum_factor = is_first ? 0.0 : 1.0,
          .initial_sum = is_first ? options.at("initial_accumulator_value") : 0};
}

namespace {

Options read(const Section& optim) {
  Options options;
  read_numbers(optim, options, {"eps", "lr_decay", "initial_accumulator_value"});
  return options;
}

std::vector<std::string> state_names(const Options&) { return {"sum"}; }

double initial_state(const Options& options, std::size_t) { return options.at("initial_accumulator_value"); }

}  // namespace

Rule adagrad_rule() {
  return {
      .name = "adagrad",
      .help = "Adagrad",
      .keys = {eps_key(),
               keys::real("optim.lr_decay", "0",
                          "adagrad: learning rate decay; lr is divided by 1 + lr_decay * number of previous updates",
                          0),
               keys::real("optim.initial_accumulator_value", "0", "adagrad: initial value of the sums of squares", 0)},
      .read = read,
      .state_names = state_names,
      .kind = ElementRule{.coefficients = erased<adagrad_coefficients>,
                          .update32 = erased<at_level<update<float>>>,
                          .update64 = erased<at_level<update<double>>>,
                          .update_tensors = update_adagrad_tensors},
      .initial_state = initial_state};
}

}  // namespace lockstep::optim
