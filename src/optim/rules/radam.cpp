// SPDX-License-Identifier: BSD-3-Clause
#include "optim/rules/element_rule.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

struct RAdam {
  GradientTerms terms;
  TwoMoments moments;
  Coefficient eps;
  Coefficient step_size;
  Coefficient is_rectified;  ///< 1: divide by the root of the mean square, once that is known well enough

  static constexpr unsigned kVariants = 2;
  static constexpr std::size_t states(unsigned) { return 2; }
  unsigned variant() const { return is_rectified.value != 0 ? 1 : 0; }

  template <unsigned kIsRectified, class T>
  LOCKSTEP_INLINE void update(Element<T>& e) const {
    const T g = terms.gradient(e);
    moments.learn(e, g);
    const T& mean = e.state[0];
    const T decayed = terms.decay_factor * e.parameter;
    if constexpr (kIsRectified != 0) e.parameter = minus_quotient(decayed, step_size, mean, sqrt(e.state[1]) + eps);
    if constexpr (kIsRectified == 0) e.parameter = minus(decayed, step_size, mean);
  }
};

/// The rectification that the variance of the mean square allows of a step (equations 4 to 6 and algorithm 2 of the
/// paper).
struct Rectification {
  bool is_rectified = false;  ///< the variance is finite
  double factor = 1;
};

Rectification rectification(double beta2, std::int64_t step) {
  const auto t = static_cast<double>(step);
  const double limit = 2 / (1 - beta2) - 1;
  const double length = limit - 2 * t * std::pow(beta2, t) / bias_correction(beta2, step);
  if (!(length > 5)) return {};
  return {.is_rectified = true,
          .factor = std::sqrt((length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length))};
}

RAdam radam(const Options& options, std::int64_t step) {
  const Rectification rectified = rectification(options.at("beta2"), step);
  double step_size = options.at("lr") / bias_correction(options.at("beta1"), step);
  if (rectified.is_rectified) {
    step_size *= rectified.factor * std::sqrt(bias_correction(options.at("beta2"), step));
  }
  return {.terms = gradient_terms(options, options.at("decoupled_weight_decay") != 0),
          .moments = moments(options),
          .eps = options.at("eps"),
          .step_size = changing(step_size),
          .is_rectified = rectified.is_rectified ? 1.0 : 0.0};
}

KeySpecs radam_keys() { return {betas_key(), eps_key(), decoupled_weight_decay_key()}; }

}  // namespace

Rule radam_rule() {
  return rule_of_keys<radam_keys>("radam", "RAdam: rectified Adam, which needs no warm-up", moment_states,
                                  element_rule<radam>());
}

}  // namespace lockstep::optim
