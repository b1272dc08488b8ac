// SPDX-License-Identifier: BSD-3-Clause
#include "optim/rules/element_rule.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

struct Adamax {
  GradientTerms terms;
  Coefficient step_size;
  Coefficient take1;  ///< 1 - beta1
  Coefficient beta2;
  Coefficient eps;

  static constexpr std::size_t kStates = 2;

  template <class T>
  LOCKSTEP_INLINE void update(Element<T>& e) const {
    T& mean = e.state[0];
    T& largest = e.state[1];
    const T g = terms.gradient(e);
    mean = towards(mean, g, take1);
    largest = maximum(beta2 * largest, abs(g) + eps);
    e.parameter = minus_quotient(e.parameter, step_size, mean, largest);
  }
};

Adamax adamax(const Options& options, std::int64_t step) {
  return {.terms = gradient_terms(options, /*is_decoupled=*/false),
          .step_size = changing(options.at("lr") / bias_correction(options.at("beta1"), step)),
          .take1 = 1 - options.at("beta1"),
          .beta2 = options.at("beta2"),
          .eps = options.at("eps")};
}

KeySpecs adamax_keys() { return {lr_key("0.002"), betas_key(), eps_key()}; }

std::vector<std::string> adamax_states(const Options&) { return {"exp_avg", "exp_inf"}; }

}  // namespace

Rule adamax_rule() {
  return rule_of_keys<adamax_keys>("adamax", "Adamax: Adam with the infinity norm", adamax_states,
                                   element_rule<adamax>());
}

}  // namespace lockstep::optim
