// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>

#include "optim/rules/element_rule.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

constexpr unsigned kHasL2 = 1;  ///< Adam with weight decay; else the gradient is taken as it is
constexpr unsigned kIsAmsgrad = 2;

struct Adam {
  GradientTerms terms;
  TwoMoments moments;
  Coefficient step_size;        ///< lr / (1 - beta1^step)
  Coefficient root_correction;  ///< sqrt(1 - beta2^step)
  Coefficient eps;
  Coefficient is_amsgrad;

  static constexpr unsigned kVariants = 4;
  static constexpr std::size_t states(unsigned variant) { return (variant & kIsAmsgrad) != 0 ? 3 : 2; }
  unsigned variant() const {
    return (terms.l2_coefficient.value != 0 ? kHasL2 : 0) | (is_amsgrad.value != 0 ? kIsAmsgrad : 0);
  }

  template <unsigned kVariant, class T>
  LOCKSTEP_INLINE void update(Element<T>& e) const {
    T g = terms.sign * e.gradient;
    if constexpr ((kVariant & kHasL2) != 0) g = plus(g, terms.l2_coefficient, e.parameter);
    moments.learn(e, g);
    T divisor = e.state[1];
    if constexpr ((kVariant & kIsAmsgrad) != 0) divisor = e.state[2] = maximum(e.state[2], divisor);
    const T denominator = sqrt(divisor) / root_correction + eps;
    e.parameter = minus_quotient(terms.decay_factor * e.parameter, step_size, e.state[0], denominator);
  }
};

template <bool kIsDecoupled>
Adam adam(const Options& options, std::int64_t step) {
  return {.terms = gradient_terms(options, kIsDecoupled),
          .moments = moments(options),
          .step_size = changing(options.at("lr") / bias_correction(options.at("beta1"), step)),
          .root_correction = changing(std::sqrt(bias_correction(options.at("beta2"), step))),
          .eps = options.at("eps"),
          .is_amsgrad = options.at("amsgrad")};
}

KeySpecs adam_keys() {
  return {betas_key(), eps_key(),
          keys::boolean("optim.amsgrad", "false", "adam, adamw: use the maximum of past second moments (AMSGrad)")};
}

KeySpecs adamw_keys() {
  KeySpecs keys = adam_keys();
  keys.push_back(weight_decay_key("0.01"));
  return keys;
}

std::vector<std::string> adam_states(const Options& options) {
  if (options.at("amsgrad") == 0) return {"exp_avg", "exp_avg_sq"};
  return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
}

}  // namespace

Rule adam_rule() {
  return rule_of_keys<adam_keys>("adam", "Adam", adam_states, element_rule<adam<false>>(update_adam_tensors));
}

Rule adamw_rule() {
  return rule_of_keys<adamw_keys>("adamw", "Adam with decoupled weight decay", adam_states,
                                  element_rule<adam<true>>(update_adamw_tensors));
}

}  // namespace lockstep::optim
