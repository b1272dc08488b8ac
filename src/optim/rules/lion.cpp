// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>

#include "optim/rules/element_rule.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

struct Lion {
  GradientTerms terms;
  Coefficient lr;
  Coefficient beta1;
  Coefficient take1;    ///< 1 - beta1
  Coefficient take2;    ///< 1 - beta2
  Coefficient caution;  ///< multiplies what moves along with its gradient; 0 = everything moves

  static constexpr unsigned kVariants = 2;
  static constexpr std::size_t states(unsigned) { return 1; }
  unsigned variant() const { return caution.value != 0 ? 1 : 0; }

  template <unsigned, class T>
  LOCKSTEP_INLINE T direction(Element<T>& e) const {
    e.gradient = terms.sign * e.gradient;
    return sign(mixed(beta1, e.state[0], take1, e.gradient));
  }

  /// Whether the element would move along with the gradient.
  template <class T>
  LOCKSTEP_INLINE T measured(const Element<T>& e, const T& direction) const {
    return agreement(direction, e.gradient);
  }

  template <class T>
  T factor(const T&, const T& agreeing_share) const {
    return reciprocal(clamp_min(agreeing_share, 1e-3));
  }

  /// Elements whose update opposes the gradient stay; the others move further in their place.
  template <unsigned kIsCautious, class T>
  LOCKSTEP_INLINE void apply(Element<T>& e, const T& direction, const T& agrees) const {
    const T decayed = terms.decay_factor * e.parameter;
    if constexpr (kIsCautious != 0) e.parameter = minus(decayed, lr, caution, T(direction * agrees));
    if constexpr (kIsCautious == 0) e.parameter = minus(decayed, lr, direction);
    e.state[0] = towards(e.state[0], e.gradient, take2);
  }

  static constexpr auto kAdapted = &Lion::caution;
  static constexpr bool kCounts = true;
  static bool adapts(std::size_t) { return true; }
};

Lion lion(const Options& options, std::int64_t) {
  return {.terms = gradient_terms(options, /*is_decoupled=*/true),
          .lr = changing(options.at("lr")),
          .beta1 = options.at("beta1"),
          .take1 = 1 - options.at("beta1"),
          .take2 = 1 - options.at("beta2"),
          .caution = options.at("caution")};
}

KeySpecs lion_keys() {
  return {lr_key("0.0001"), betas_key("0.9, 0.99"),
          keys::boolean("optim.caution", "false",
                        "lion: cautious updates, which skip elements that would move against their "
                        "gradient")};
}

std::vector<std::string> lion_states(const Options&) { return {"exp_avg"}; }

}  // namespace

Rule lion_rule() {
  return rule_of_keys<lion_keys>(
      "lion",
      "Lion: steps along the sign of the momentum, with decoupled weight decay; usually with a third of the lr of "
      "adamw",
      lion_states, tensor_rule<lion>([](const Options& options) { return Needs{.sums = options.at("caution") != 0}; }));
}

}  // namespace lockstep::optim
