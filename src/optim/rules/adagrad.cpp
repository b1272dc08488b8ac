// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>

#include "optim/rules/element_rule.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

struct Adagrad {
  GradientTerms terms;
  Coefficient step_size;
  Coefficient eps;
  Coefficient sum_factor;   ///< multiplies the stored sum: 0 in the first update
  Coefficient initial_sum;  ///< initial value of the sum in the first update; then 0

  static constexpr std::size_t kStates = 1;

  template <class T>
  LOCKSTEP_INLINE void update(Element<T>& e) const {
    T& sum = e.state[0];
    const T g = terms.gradient(e);
    sum = plus_square(sum_factor * sum + initial_sum, 1, g);
    e.parameter = minus_quotient(e.parameter, step_size, g, sqrt(sum) + eps);
  }
};

Adagrad adagrad(const Options& options, std::int64_t step) {
  // The first update does not read the stored sum: in older checkpoints it is 0 until then.
  const bool is_first = step == 1;
  return {.terms = gradient_terms(options, /*is_decoupled=*/false),
          .step_size = changing(adagrad_step_size(options, step)),
          .eps = options.at("eps"),
          .sum_factor = is_first ? 0.0 : 1.0,
          .initial_sum = is_first ? options.at("initial_accumulator_value") : 0};
}

KeySpecs adagrad_keys() {
  return {lr_key("0.01"), eps_key("1e-10"),
          keys::real("optim.lr_decay", "0",
                     "adagrad: learning rate decay; lr is divided by 1 + lr_decay * number of previous updates", 0),
          keys::real("optim.initial_accumulator_value", "0", "adagrad: initial value of the sums of squares", 0)};
}

std::vector<std::string> adagrad_states(const Options&) { return {"sum"}; }

}  // namespace

double adagrad_step_size(const Options& options, std::int64_t step) {
  return options.at("lr") / (1 + static_cast<double>(step - 1) * options.at("lr_decay"));
}

Rule adagrad_rule() {
  Rule rule =
      rule_of_keys<adagrad_keys>("adagrad", "Adagrad", adagrad_states, element_rule<adagrad>(update_adagrad_tensors));
  rule.initial_state = [](const Options& options, std::size_t) { return options.at("initial_accumulator_value"); };
  return rule;
}

}  // namespace lockstep::optim
