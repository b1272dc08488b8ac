// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>

#include <algorithm>

#include "optim/rules/element_rule.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

struct Asgd {
  GradientTerms terms;
  Coefficient decay_factor;
  Coefficient step_size;
  Coefficient average_share;  ///< share of the way by which the average moves towards the parameter
  Coefficient averages;       ///< 0: the average is the parameter itself

  static constexpr unsigned kVariants = 2;
  static constexpr std::size_t states(unsigned) { return 1; }
  unsigned variant() const { return averages.value != 0 ? 1 : 0; }

  template <unsigned kAverages, class T>
  LOCKSTEP_INLINE void update(Element<T>& e) const {
    T& average = e.state[0];
    const T g = terms.gradient(e);
    e.parameter = minus(decay_factor * e.parameter, step_size, g);
    if constexpr (kAverages != 0) average = towards(average, e.parameter, average_share);
    if constexpr (kAverages == 0) average = e.parameter;
  }
};

/// The step size and the share of the average follow from the updates before this one.
Asgd asgd(const Options& options, std::int64_t step) {
  const double lr = options.at("lr");
  const double lambd = options.at("lambd");
  const auto before = static_cast<double>(step - 1);
  const double step_size = lr / std::pow(1 + lambd * lr * before, options.at("eta_power"));
  const double average_share = 1 / std::max(1.0, before - options.at("t0"));
  return {.terms = gradient_terms(options, /*is_decoupled=*/false),
          .decay_factor = changing(1 - lambd * step_size),
          .step_size = changing(step_size),
          .average_share = changing(average_share),
          .averages = average_share != 1 ? 1.0 : 0.0};
}

KeySpecs asgd_keys() {
  return {lr_key("0.01"), keys::real("optim.lambd", "0.0001", "asgd: decay term", 0),
          keys::real("optim.eta_power", "0.75", "asgd: exponent of the step size decay"),
          keys::real("optim.t0", "1000000", "asgd: number of updates before averaging starts", 0)};
}

std::vector<std::string> asgd_states(const Options&) { return {"ax"}; }

}  // namespace

Rule asgd_rule() {
  return rule_of_keys<asgd_keys>("asgd", "Averaged SGD; the average of the parameters is the state 'ax'", asgd_states,
                                 element_rule<asgd>());
}

}  // namespace lockstep::optim
