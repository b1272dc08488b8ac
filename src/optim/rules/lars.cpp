// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include "optim/rules/momentum.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

struct Lars {
  GradientTerms terms;
  Coefficient lr;
  Coefficient momentum;
  Coefficient gradient_share;
  Coefficient kind;  ///< Momentum
  Coefficient trust_coefficient;
  Coefficient eps;
  Coefficient has_joint_norm;  ///< 1: the norm of gradient plus weight decay counts, else the sum of their norms
  Coefficient is_clipped;      ///< 1: the ratio never lengthens a step
  Coefficient adapts_vectors;  ///< 0: parameters of one dimension are not adapted
  Coefficient ratio_of_zero;   ///< ratio where the gradient is 0
  Coefficient ratio = 1;       ///< how far the parameter moves in relation to its own size

  static constexpr unsigned kVariants = 3;
  static constexpr std::size_t states(unsigned variant) { return variant == kNoMomentum ? 0 : 1; }
  unsigned variant() const { return static_cast<unsigned>(kind.value); }

  template <unsigned, class T>
  LOCKSTEP_INLINE T direction(Element<T>& e) const {
    return terms.gradient(e);
  }

  template <class T>
  LOCKSTEP_INLINE T measured(const Element<T>& e, const T& direction) const {
    return has_joint_norm.value != 0 ? direction : e.gradient;
  }

  template <class T>
  T factor(const T& parameter_norm, const T& gradient_norm) const {
    const T divisor =
        has_joint_norm.value != 0 ? gradient_norm : T(plus(gradient_norm, terms.l2_coefficient, parameter_norm) + eps);
    T result = trust_coefficient * parameter_norm / divisor;
    if (is_clipped.value != 0) result = clamp_max(T(result / lr), 1);
    if (ratio_of_zero.value == 1) return unless_zero(result, minimum(parameter_norm, gradient_norm), 1);
    return unless_zero(unless_zero(result, gradient_norm, ratio_of_zero), parameter_norm, 1);
  }

  /// On GPUs, LibTorch's kernel of SGD follows.
  template <unsigned kMomentum, class T>
  LOCKSTEP_INLINE void apply(Element<T>& e, const T& direction, const T&) const {
    e.gradient = ratio * direction;
    if constexpr (std::floating_point<T>) descend<kMomentum>(e, e.gradient, lr, momentum, gradient_share);
  }

  static constexpr bool kDescends = true;

  static constexpr auto kAdapted = &Lars::ratio;
  static constexpr bool kCounts = false;
  bool adapts(std::size_t dims) const { return adapts_vectors.value != 0 || dims != 1; }
};

Lars lars(const Options& options, std::int64_t step) {
  return {.terms = gradient_terms(options, /*is_decoupled=*/false),
          .lr = changing(options.at("lr")),
          .momentum = options.at("momentum"),
          .gradient_share = gradient_share(options, step),
          .kind = momentum_of(options),
          .trust_coefficient = options.at("trust_coefficient"),
          .eps = options.at("eps"),
          .has_joint_norm = options.at("joint_norm"),
          .is_clipped = options.at("trust_clip"),
          .adapts_vectors = options.at("adapt_vectors"),
          .ratio_of_zero = 1};
}

/// A parameter with a gradient of 0 does not even decay.
Lars larc(const Options& options, std::int64_t step) {
  Options all = options;
  all["adapt_vectors"] = 1;
  Lars rule = lars(all, step);
  rule.ratio_of_zero = 0;
  return rule;
}

Needs needs_of_lars(const Options& options) {
  return {.sums = options.at("weight_decay") != 0 || options.at("always_adapt") != 0};
}

/// The keys of both rules; the default of the trust coefficient is that of their papers and of NVIDIA's library.
KeySpecs common_keys(const std::string& trust_coefficient) {
  KeySpecs keys = momentum_keys();
  keys.insert(keys.end(), {eps_key(), keys::real("optim.trust_coefficient", trust_coefficient, "Trust coefficient", 0),
                           trust_clip_key()});
  return keys;
}

KeySpecs larc_keys() { return common_keys("0.02"); }

KeySpecs lars_keys() {
  KeySpecs keys = common_keys("0.001");
  keys.insert(keys.end(),
              {always_adapt_key(),
               keys::boolean("optim.joint_norm", "false",
                             "Use the norm of gradient plus weight decay instead of the sum of their norms"),
               keys::boolean("optim.adapt_vectors", "true", "Also adapt one-dimensional parameters")});
  return keys;
}

/// @param keys  those of the rule
Options read_options(const Section& optim, const KeySpecs& keys) {
  Options options = read_momentum(optim);
  if (options.at("momentum") >= 1) {
    throw ConfigError(optim.cite("momentum") + " must be in [0, 1) for " + optim.text("name"));
  }
  options.merge(read_keys(optim, keys));
  return options;
}

Options read_lars(const Section& optim) { return read_options(optim, lars_keys()); }

Options read_larc(const Section& optim) {
  Options options = read_options(optim, larc_keys());
  options["always_adapt"] = 1;
  options["joint_norm"] = 0;
  return options;
}

}  // namespace

Rule lars_rule() {
  return {.name = "lars",
          .help = "LARS: SGD with momentum and a trust ratio per parameter, for large batches",
          .keys = lars_keys(),
          .read = read_lars,
          .state_names = momentum_states,
          .kind = tensor_rule<lars>(needs_of_lars)};
}

Rule larc_rule() {
  return {.name = "larc",
          .help = "LARC: LARS for every parameter; with trust_clip, the learning rate is an upper limit",
          .keys = larc_keys(),
          .read = read_larc,
          .state_names = momentum_states,
          .kind = tensor_rule<larc>(needs_of_lars)};
}

}  // namespace lockstep::optim
