// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>

#include <algorithm>

#include "optim/rules/element_rule.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

struct Lamb {
  GradientTerms terms;
  Coefficient gradient_scale;  ///< sign of the gradient, times what scales all gradients down to max_grad_norm
  Coefficient beta1;
  Coefficient gradient_share;  ///< share of the gradient that enters the mean
  Coefficient beta2;
  Coefficient take2;             ///< 1 - beta2
  Coefficient correction1;       ///< 1 - beta1^step
  Coefficient root_correction2;  ///< sqrt(1 - beta2^step)
  Coefficient eps;
  Coefficient decay_size;  ///< magnitude of terms.decay_factor
  Coefficient step_size;
  Coefficient is_clipped;  ///< 1: the ratio never lengthens a step
  Coefficient max_grad_norm;
  Coefficient was_measured = 0;  ///< 1: measuring has updated the moments

  static constexpr unsigned kVariants = 2;
  static constexpr std::size_t states(unsigned) { return 2; }
  unsigned variant() const { return was_measured.value != 0 ? 1 : 0; }

  double norm_divisor(double gradient_norm) const { return std::max(1.0, gradient_norm / max_grad_norm.value); }

  /// The step that would be subtracted if lr were 1 and nothing adapted.
  template <unsigned kWasMeasured, class T>
  LOCKSTEP_INLINE T direction(Element<T>& e) const {
    T& mean = e.state[0];
    T& square = e.state[1];
    if constexpr (kWasMeasured == 0) {
      const T g = gradient_scale * e.gradient;
      mean = plus(beta1 * mean, gradient_share, g);
      square = plus_square(beta2 * square, take2, g);
    }
    const T denominator = sqrt(square) / root_correction2 + eps;
    return plus(mean / correction1 / denominator, terms.l2_coefficient, e.parameter);
  }

  template <class T>
  LOCKSTEP_INLINE T measured(const Element<T>&, const T& direction) const {
    return direction;
  }

  double factor(double parameter_norm, double step_norm) const {
    const double decayed_norm = decay_size.value * parameter_norm;
    const double ratio = decayed_norm > 0 && step_norm > 0 ? decayed_norm / step_norm : 1;
    return is_clipped.value != 0 ? std::min(ratio, 1.0) : ratio;
  }

  template <unsigned, class T>
  LOCKSTEP_INLINE void apply(Element<T>& e, const T& direction, const T&) const {
    e.parameter = minus(terms.decay_factor * e.parameter, step_size, direction);
  }

  static constexpr auto kScaled = &Lamb::gradient_scale;
  static constexpr auto kAdapted = &Lamb::step_size;
  static constexpr bool kCounts = false;
  static bool adapts(std::size_t) { return true; }
};

Lamb lamb(const Options& options, std::int64_t step) {
  const GradientTerms terms = gradient_terms(options, options.at("decoupled_weight_decay") != 0);
  Coefficient decay_size = terms.decay_factor;
  decay_size.value = std::abs(decay_size.value);
  const bool is_corrected = options.at("bias_correction") != 0;
  const auto correction = [&](const char* beta) { return is_corrected ? bias_correction(options.at(beta), step) : 1; };
  return {.terms = terms,
          .gradient_scale = terms.sign,
          .beta1 = options.at("beta1"),
          .gradient_share = options.at("grad_averaging") != 0 ? 1 - options.at("beta1") : 1,
          .beta2 = options.at("beta2"),
          .take2 = 1 - options.at("beta2"),
          .correction1 = changing(correction("beta1")),
          .root_correction2 = changing(std::sqrt(correction("beta2"))),
          .eps = options.at("eps"),
          .decay_size = decay_size,
          .step_size = changing(options.at("lr")),
          .is_clipped = options.at("trust_clip"),
          .max_grad_norm = options.at("max_grad_norm")};
}

KeySpecs lamb_keys() {
  return {
      weight_decay_key("0.01"),
      betas_key(),
      eps_key("1e-6"),
      decoupled_weight_decay_key(),
      trust_clip_key(),
      always_adapt_key(),
      keys::real("optim.max_grad_norm", "0", "lamb: maximum 2-norm of all gradients. 0 = unlimited", 0),
      keys::boolean("optim.bias_correction", "true", "lamb: use bias correction"),
      keys::boolean("optim.grad_averaging", "true", "lamb: multiply the gradient by 1 - beta1 in the first moment")};
}

}  // namespace

Needs needs_of_lamb(const Options& options) {
  return {.gradient_norm = options.at("max_grad_norm") != 0,
          .sums = options.at("weight_decay") != 0 || options.at("always_adapt") != 0};
}

Rule lamb_rule() {
  Rule rule = rule_of_keys<lamb_keys>("lamb", "LAMB: Adam with a trust ratio per parameter, for large batches",
                                      moment_states, tensor_rule<lamb, update_lamb_tensors>(needs_of_lamb));
  rule.counts_every_step = true;
  return rule;
}

}  // namespace lockstep::optim
