// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>

#include "optim/rules/element_rule.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

struct Adadelta {
  GradientTerms terms;
  Coefficient lr;
  Coefficient rho;
  Coefficient take;  ///< 1 - rho
  Coefficient eps;

  static constexpr std::size_t kStates = 2;

  template <class T>
  LOCKSTEP_INLINE void update(Element<T>& e) const {
    T& square = e.state[0];
    T& moved = e.state[1];
    const T g = terms.gradient(e);
    square = plus_square(rho * square, take, g);
    const T change = sqrt(moved + eps) / sqrt(square + eps) * g;
    moved = plus_square(rho * moved, take, change);
    e.parameter = minus(e.parameter, lr, change);
  }
};

Adadelta adadelta(const Options& options, std::int64_t) {
  return {.terms = gradient_terms(options, /*is_decoupled=*/false),
          .lr = changing(options.at("lr")),
          .rho = options.at("rho"),
          .take = 1 - options.at("rho"),
          .eps = options.at("eps")};
}

KeySpecs adadelta_keys() {
  return {lr_key("1"), eps_key("1e-6"),
          keys::real("optim.rho", "0.9", "adadelta: decay rate of the mean squares", 0, 1)};
}

std::vector<std::string> adadelta_states(const Options&) { return {"square_avg", "acc_delta"}; }

}  // namespace

Rule adadelta_rule() {
  return rule_of_keys<adadelta_keys>("adadelta", "Adadelta", adadelta_states, element_rule<adadelta>());
}

}  // namespace lockstep::optim
