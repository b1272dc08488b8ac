// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>

#include "optim/rules/element_rule.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

constexpr unsigned kIsCentered = 1;
constexpr unsigned kHasMomentum = 2;

struct RmsProp {
  GradientTerms terms;
  Coefficient lr;
  Coefficient alpha;
  Coefficient take;  ///< 1 - alpha
  Coefficient eps;
  Coefficient momentum;
  Coefficient is_centered;

  static constexpr unsigned kVariants = 4;
  static constexpr std::size_t states(unsigned variant) {
    return std::size_t{1} + ((variant & kIsCentered) != 0 ? 1 : 0) + ((variant & kHasMomentum) != 0 ? 1 : 0);
  }
  unsigned variant() const {
    return (is_centered.value != 0 ? kIsCentered : 0) | (momentum.value != 0 ? kHasMomentum : 0);
  }

  template <unsigned kVariant, class T>
  LOCKSTEP_INLINE void update(Element<T>& e) const {
    constexpr bool kCenters = (kVariant & kIsCentered) != 0;
    T& square = e.state[0];
    const T g = terms.gradient(e);
    square = plus_square(alpha * square, take, g);
    T variance = square;
    if constexpr (kCenters) {
      T& mean = e.state[1];
      mean = towards(mean, g, take);
      variance = clamp_min(minus_product(variance, mean, mean), 0);  // rounding may have made it negative
    }
    const T denominator = sqrt(variance) + eps;
    if constexpr ((kVariant & kHasMomentum) != 0) {
      T& buffer = e.state[kCenters ? 2 : 1];
      buffer = plus_quotient(momentum * buffer, g, denominator);
      e.parameter = minus(e.parameter, lr, buffer);
    } else {
      e.parameter = minus_quotient(e.parameter, lr, g, denominator);
    }
  }
};

RmsProp rmsprop(const Options& options, std::int64_t) {
  return {.terms = gradient_terms(options, /*is_decoupled=*/false),
          .lr = changing(options.at("lr")),
          .alpha = options.at("alpha"),
          .take = 1 - options.at("alpha"),
          .eps = options.at("eps"),
          .momentum = options.at("momentum"),
          .is_centered = options.at("centered")};
}

std::vector<std::string> rmsprop_states(const Options& options) {
  std::vector<std::string> names = {"square_avg"};
  if (options.at("centered") != 0) names.emplace_back("grad_avg");
  if (options.at("momentum") != 0) names.emplace_back("momentum_buffer");
  return names;
}

KeySpecs rmsprop_keys() {
  return {lr_key("0.01"), momentum_keys().front(), eps_key(),
          keys::real("optim.alpha", "0.99", "rmsprop: decay rate of the mean square", 0, 1),
          keys::boolean("optim.centered", "false",
                        "rmsprop: divide by the standard deviation of the gradient (centered RMSprop)")};
}

}  // namespace

Rule rmsprop_rule() {
  return rule_of_keys<rmsprop_keys>("rmsprop", "RMSprop", rmsprop_states, element_rule<rmsprop>());
}

}  // namespace lockstep::optim
