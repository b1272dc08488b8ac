// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/numbers/at_level.hpp"
#include "kernels/sums.hpp"
#include "optim/rules/coefficients.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/piece_sums.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

/// The gradient with weight decay, scaled by the ratio of the parameter.
template <class T>
LOCKSTEP_INLINE void scaled_gradient(T* __restrict scaled, const T* __restrict gradient, const T* __restrict parameter,
                                     std::int64_t count, const LarsCoefficients& c) {
  const auto sign = static_cast<T>(c.sign);
  const auto l2_coefficient = static_cast<T>(c.l2_coefficient);
  const auto ratio = static_cast<T>(c.ratio);
  for (std::int64_t i = 0; i < count; ++i) scaled[i] = ratio * (sign * gradient[i] + l2_coefficient * parameter[i]);
}

template <class T>
LOCKSTEP_INLINE void descend_with_momentum(T* __restrict parameter, const T* __restrict gradient, T* __restrict buffer,
                                           std::int64_t count, const LarsCoefficients& c) {
  const auto lr = static_cast<T>(c.lr);
  const auto momentum = static_cast<T>(c.momentum);
  const auto gradient_share = static_cast<T>(c.gradient_share);
  const bool is_nesterov = c.is_nesterov;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = gradient[i];
    const T velocity = momentum * buffer[i] + gradient_share * g;
    buffer[i] = velocity;
    parameter[i] -= lr * (is_nesterov ? g + momentum * velocity : velocity);
  }
}

template <class T>
LOCKSTEP_INLINE void descend(T* __restrict parameter, const T* __restrict gradient, std::int64_t count, T lr) {
  for (std::int64_t i = 0; i < count; ++i) parameter[i] -= lr * gradient[i];
}

template <class T>
void update(const LarsCoefficients& c, const ElementRange<T>& range) {
  std::array<T, kPieceElements> scaled;  // uninitialized: filled as far as it is used
  at_level<scaled_gradient<T>>(scaled.data(), range.gradient, range.parameter, range.count, c);
  if (c.momentum == 0) {
    at_level<descend<T>>(range.parameter, scaled.data(), range.count, static_cast<T>(c.lr));
  } else {
    at_level<descend_with_momentum<T>>(range.parameter, scaled.data(), range.state[0], range.count, c);
  }
}

/// The squares of the parameter, and of the gradient without or (joint_norm) with weight decay.
template <class T>
Sums measure(const LarsCoefficients& c, const ElementRange<T>& range) {
  const double of_parameter = kernels::sum_of_squares(range.parameter, range.count);
  if (!c.has_joint_norm) return {of_parameter, kernels::sum_of_squares(range.gradient, range.count)};
  std::array<T, kPieceElements> decayed;  // uninitialized: filled as far as it is used
  at_level<scaled_gradient<T>>(decayed.data(), range.gradient, range.parameter, range.count, c);
  return {of_parameter, kernels::sum_of_squares(decayed.data(), range.count)};
}

/// How far a parameter moves in relation to its own size.
double trust_ratio(const Options& options, double parameter_norm, double gradient_norm) {
  const bool is_joint = options.at("joint_norm") != 0;
  const double divisor =
      is_joint ? gradient_norm : gradient_norm + options.at("weight_decay") * parameter_norm + options.at("eps");
  const double ratio = options.at("trust_coefficient") * parameter_norm / divisor;
  return options.at("trust_clip") != 0 ? std::min(ratio / options.at("lr"), 1.0) : ratio;
}

void adapt_lars(LarsCoefficients& c, const Options& options, const Sums& sums, const Segment& segment) {
  if (sums[0] == 0 || sums[1] == 0) return;
  if (options.at("adapt_vectors") == 0 && segment.shape.size() == 1) return;
  c.ratio = trust_ratio(options, std::sqrt(sums[0]), std::sqrt(sums[1]));
}

void adapt_larc(LarsCoefficients& c, const Options& options, const Sums& sums, const Segment&) {
  if (sums[0] == 0 || sums[1] == 0) {
    c.l2_coefficient = 0;
  } else {
    c.ratio = trust_ratio(options, std::sqrt(sums[0]), std::sqrt(sums[1]));
  }
}

Needs needs(const Options& options) {
  return {.sums = options.at("weight_decay") != 0 || options.at("always_adapt") != 0};
}

}  // namespace

LarsCoefficients lars_coefficients(const Options& options, std::int64_t step) {
  const GradientTerms terms = gradient_terms(options, /*is_decoupled=*/false);
  return {.sign = terms.sign,
          .l2_coefficient = terms.l2_coefficient,
          .lr = options.at("lr"),
          .momentum = options.at("momentum"),
          .gradient_share = step == 1 ? 1 : 1 - options.at("dampening"),  // same as in SGD
          .is_nesterov = options.at("nesterov") != 0,
          .has_joint_norm = options.at("joint_norm") != 0};
}

namespace {

/// The options that both rules read.
Options read_common(const Section& optim) {
  Options options;
  read_momentum(optim, options);
  if (options.at("momentum") >= 1) {
    throw ConfigError(optim.cite("momentum") + " must be in [0, 1) for " + optim.text("name"));
  }
  read_numbers(optim, options, {"trust_coefficient", "eps"});
  read_flags(optim, options, {"trust_clip"});
  return options;
}

Options read_lars(const Section& optim) {
  Options options = read_common(optim);
  read_flags(optim, options, {"always_adapt", "joint_norm", "adapt_vectors"});
  return options;
}

Options read_larc(const Section& optim) {
  Options options = read_common(optim);
  options["always_adapt"] = 1;
  options["joint_norm"] = 0;
  return options;
}

std::vector<std::string> state_names(const Options& options) {
  if (options.at("momentum") == 0) return {};
  return {"momentum_buffer"};
}

KeySpecs keys() {
  KeySpecs keys = momentum_keys();
  keys.push_back(eps_key());
  keys.push_back(keys::real("optim.trust_coefficient", "0.001",
                            "lars, larc: trust coefficient; usually 0.001 for lars and 0.02 for larc", 0));
  keys.push_back(trust_clip_key());
  keys.push_back(always_adapt_key());
  keys.push_back(keys::boolean("optim.joint_norm", "false",
                               "lars: use the norm of gradient plus weight decay instead of the sum of their norms"));
  keys.push_back(keys::boolean("optim.adapt_vectors", "true", "lars: also adapt one-dimensional parameters"));
  return keys;
}

TensorRule adapted_by(decltype(TensorRule::adapt) adapt, TensorForm update_tensors) {
  return {.elements = {.coefficients = erased<lars_coefficients>,
                       .update32 = erased<update<float>>,
                       .update64 = erased<update<double>>,
                       .update_tensors = update_tensors},
          .needs = needs,
          .measure32 = erased<measure<float>>,
          .measure64 = erased<measure<double>>,
          .adapt = adapt};
}

}  // namespace

Rule lars_rule() {
  return {.name = "lars",
          .help = "LARS: SGD with momentum and a trust ratio per parameter, for large batches",
          .keys = keys(),
          .read = read_lars,
          .state_names = state_names,
          .kind = adapted_by(erased<adapt_lars>, update_lars_tensors)};
}

Rule larc_rule() {
  return {.name = "larc",
          .help = "LARC: LARS for every parameter; with trust_clip, the learning rate is an upper limit",
          .keys = keys(),
          .read = read_larc,
          .state_names = state_names,
          .kind = adapted_by(erased<adapt_larc>, update_larc_tensors)};
}

}  // namespace lockstep::optim
