// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>

#include "optim/rules/element_rule.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

struct Nadam {
  GradientTerms terms;
  TwoMoments moments;
  Coefficient correction2;  ///< 1 - beta2^step
  Coefficient eps;
  Coefficient gradient_step;  ///< multiplies the gradient over its root mean square
  Coefficient mean_step;      ///< multiplies the mean over it

  static constexpr std::size_t kStates = 2;

  template <class T>
  LOCKSTEP_INLINE void update(Element<T>& e) const {
    const T g = terms.gradient(e);
    moments.learn(e, g);
    const T denominator = sqrt(e.state[1] / correction2) + eps;
    const T moved = minus_quotient(terms.decay_factor * e.parameter, gradient_step, g, denominator);
    e.parameter = minus_quotient(moved, mean_step, e.state[0], denominator);
  }
};

/// The momentum of one step: it rises from half of beta1 to beta1.
double momentum_at(const Options& options, std::int64_t step) {
  return options.at("beta1") * (1 - 0.5 * std::pow(0.96, static_cast<double>(step) * options.at("momentum_decay")));
}

/// The product of the momenta of steps 1 to `step`: a function of the step, so nothing need be kept. The source keeps
/// it in float32, so this rounds alike; below the last bit of 1 it does not count any more.
double momentum_product(const Options& options, std::int64_t step) {
  float product = 1;
  for (std::int64_t i = 1; i <= step && product > 1e-20F; ++i) {
    product *= static_cast<float>(momentum_at(options, i));
  }
  return product;
}

Nadam nadam(const Options& options, std::int64_t step) {
  const double momentum = momentum_at(options, step);
  const double next_momentum = momentum_at(options, step + 1);
  const double product = momentum_product(options, step);
  return {.terms = gradient_terms(options, options.at("decoupled_weight_decay") != 0),
          .moments = moments(options),
          .correction2 = changing(bias_correction(options.at("beta2"), step)),
          .eps = options.at("eps"),
          .gradient_step = changing(options.at("lr") * (1 - momentum) / (1 - product)),
          .mean_step = changing(options.at("lr") * next_momentum / (1 - product * next_momentum))};
}

KeySpecs nadam_keys() {
  return {lr_key("0.002"), betas_key(), eps_key(), decoupled_weight_decay_key(),
          keys::real("optim.momentum_decay", "0.004", "nadam: momentum decay", 0)};
}

}  // namespace

Rule nadam_rule() {
  return rule_of_keys<nadam_keys>("nadam", "NAdam: Adam with Nesterov momentum", moment_states, element_rule<nadam>());
}

}  // namespace lockstep::optim
