// SPDX-License-Identifier: BSD-3-Clause
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

template <class T>
LOCKSTEP_INLINE void update_moments(T* __restrict mean, T* __restrict square, const T* __restrict gradient,
                                    std::int64_t count, const LambCoefficients& c) {
  const auto scale = static_cast<T>(c.gradient_scale);
  const auto beta1 = static_cast<T>(c.beta1);
  const auto take1 = static_cast<T>(c.gradient_share);
  const auto beta2 = static_cast<T>(c.beta2);
  const auto take2 = static_cast<T>(1 - c.beta2);
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = scale * gradient[i];
    mean[i] = beta1 * mean[i] + take1 * g;
    square[i] = beta2 * square[i] + take2 * g * g;
  }
}

/// The step that would be subtracted if lr were 1 and nothing adapted.
template <class T>
LOCKSTEP_INLINE void direction(T* __restrict target, const T* __restrict parameter, const T* __restrict mean,
                               const T* __restrict square, std::int64_t count, const LambCoefficients& c) {
  const auto correction1 = static_cast<T>(c.correction1);
  const auto root_correction2 = static_cast<T>(c.root_correction2);
  const auto eps = static_cast<T>(c.eps);
  const auto l2_coefficient = static_cast<T>(c.l2_coefficient);
  for (std::int64_t i = 0; i < count; ++i) {
    const T denominator = std::sqrt(square[i]) / root_correction2 + eps;
    target[i] = mean[i] / correction1 / denominator + l2_coefficient * parameter[i];
  }
}

template <class T>
LOCKSTEP_INLINE void apply(T* __restrict parameter, const T* __restrict direction, std::int64_t count, T decay_factor,
                           T step_size) {
  for (std::int64_t i = 0; i < count; ++i) parameter[i] = decay_factor * parameter[i] - step_size * direction[i];
}

/// The squares of the parameter and of the direction.
template <class T>
Sums measure(const LambCoefficients& c, const ElementRange<T>& range) {
  T* const* state = range.state;
  at_level<update_moments<T>>(state[0], state[1], range.gradient, range.count, c);
  std::array<T, kPieceElements> step;  // uninitialized: filled as far as it is used
  at_level<direction<T>>(step.data(), range.parameter, state[0], state[1], range.count, c);
  return {kernels::sum_of_squares(range.parameter, range.count), kernels::sum_of_squares(step.data(), range.count)};
}

template <class T>
void update(const LambCoefficients& c, const ElementRange<T>& range) {
  T* const* state = range.state;
  if (!c.was_measured) at_level<update_moments<T>>(state[0], state[1], range.gradient, range.count, c);
  std::array<T, kPieceElements> step;  // uninitialized: filled as far as it is used
  at_level<direction<T>>(step.data(), range.parameter, state[0], state[1], range.count, c);
  at_level<apply<T>>(range.parameter, step.data(), range.count, static_cast<T>(c.decay_factor),
                     static_cast<T>(c.step_size));
}

void adapt_to_norm(LambCoefficients& c, const Options& options, double gradient_norm) {
  c.gradient_scale /= std::max(1.0, gradient_norm / options.at("max_grad_norm"));
}

void adapt(LambCoefficients& c, const Options& options, const Sums& sums, const Segment&) {
  c.was_measured = true;
  const double parameter_norm = std::abs(c.decay_factor) * std::sqrt(sums[0]);
  const double step_norm = std::sqrt(sums[1]);
  double ratio = parameter_norm > 0 && step_norm > 0 ? parameter_norm / step_norm : 1;
  if (options.at("trust_clip") != 0) ratio = std::min(ratio, 1.0);
  c.step_size *= ratio;
}

Needs needs(const Options& options) {
  return {.gradient_norm = options.at("max_grad_norm") != 0,
          .sums = options.at("weight_decay") != 0 || options.at("always_adapt") != 0};
}

}  // namespace

LambCoefficients lamb_coefficients(const Options& options, std::int64_t step) {
  const GradientTerms terms = gradient_terms(options, options.at("decoupled_weight_decay") != 0);
  const bool is_corrected = options.at("bias_correction") != 0;
  return {.gradient_scale = terms.sign,
          .beta1 = options.at("beta1"),
          .gradient_share = options.at("grad_averaging") != 0 ? 1 - options.at("beta1") : 1,
          .beta2 = options.at("beta2"),
          .correction1 = is_corrected ? bias_correction(options.at("beta1"), step) : 1,
          .root_correction2 = is_corrected ? std::sqrt(bias_correction(options.at("beta2"), step)) : 1,
          .eps = options.at("eps"),
          .l2_coefficient = terms.l2_coefficient,
          .decay_factor = terms.decay_factor,
          .step_size = options.at("lr")};
}

namespace {

Options read(const Section& optim) {
  Options options;
  read_betas(optim, options);
  read_numbers(optim, options, {"eps", "max_grad_norm"});
  read_flags(optim, options,
             {"bias_correction", "grad_averaging", "trust_clip", "always_adapt", "decoupled_weight_decay"});
  return options;
}

std::vector<std::string> state_names(const Options&) { return {"exp_avg", "exp_avg_sq"}; }

}  // namespace

Rule lamb_rule() {
  return {.name = "lamb",
          .help = "LAMB: Adam with a trust ratio per parameter, for large batches",
          .keys = {betas_key(), eps_key(), decoupled_weight_decay_key(), trust_clip_key(), always_adapt_key(),
                   keys::real("optim.max_grad_norm", "1", "lamb: maximum 2-norm of all gradients. 0 = unlimited", 0),
                   keys::boolean("optim.bias_correction", "true", "lamb: use bias correction"),
                   keys::boolean("optim.grad_averaging", "true",
                                 "lamb: multiply the gradient by 1 - beta1 in the first moment")},
          .read = read,
          .state_names = state_names,
          .kind = TensorRule{.elements = {.coefficients = erased<lamb_coefficients>,
                                          .update32 = erased<update<float>>,
                                          .update64 = erased<update<double>>,
                                          .update_tensors = update_lamb_tensors},
                             .needs = needs,
                             .adapt_to_norm = erased<adapt_to_norm>,
                             .measure32 = erased<measure<float>>,
                             .measure64 = erased<measure<double>>,
                             .adapt = erased<adapt>},
          .counts_every_step = true};
}

}  // namespace lockstep::optim
