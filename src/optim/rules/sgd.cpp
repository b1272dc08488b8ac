// SPDX-License-Identifier: BSD-3-Clause
#include "optim/rules/momentum.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

struct Sgd {
  GradientTerms terms;
  Coefficient lr;
  Coefficient momentum;
  Coefficient gradient_share;
  Coefficient kind;  ///< Momentum

  static constexpr unsigned kVariants = 3;
  static constexpr std::size_t states(unsigned variant) { return variant == kNoMomentum ? 0 : 1; }
  unsigned variant() const { return static_cast<unsigned>(kind.value); }

  template <unsigned kVariant, class T>
  LOCKSTEP_INLINE void update(Element<T>& e) const {
    const T gradient = terms.gradient(e);
    descend<kVariant>(e, gradient, lr, momentum, gradient_share);
  }
};

Sgd sgd(const Options& options, std::int64_t step) {
  return {.terms = gradient_terms(options, /*is_decoupled=*/false),
          .lr = changing(options.at("lr")),
          .momentum = options.at("momentum"),
          .gradient_share = gradient_share(options, step),
          .kind = momentum_of(options)};
}

}  // namespace

Rule sgd_rule() {
  return {.name = "sgd",
          .help = "SGD with optional momentum, dampening and Nesterov momentum",
          .keys = momentum_keys(),
          .read = read_momentum,
          .state_names = momentum_states,
          .kind = element_rule<sgd>(update_sgd_tensors)};
}

}  // namespace lockstep::optim
