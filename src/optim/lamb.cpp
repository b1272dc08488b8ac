// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cmath>

#include "kernel.hpp"
#include "options.hpp"
#include "piece_sums.hpp"
#include "rules.hpp"

namespace lockstep::optim {

namespace {

enum : std::size_t {
  kScale,  // of the gradient; its sign and what brings all gradients down to max_grad_norm
  kBeta1,
  kTake1,
  kBeta2,
  kCorrection1,
  kRootCorrection2,
  kEps,
  kPull,
  kKeep,
  kStepSize,
  kWasMeasured
};

template <class T>
LOCKSTEP_VECTORISED void update_moments(T* __restrict mean, T* __restrict square, const T* __restrict gradient,
                                        std::int64_t count, const Coefficients& c) {
  const auto scale = static_cast<T>(c[kScale]);
  const auto beta1 = static_cast<T>(c[kBeta1]);
  const auto take1 = static_cast<T>(c[kTake1]);
  const auto beta2 = static_cast<T>(c[kBeta2]);
  const auto take2 = static_cast<T>(1 - c[kBeta2]);
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = scale * gradient[i];
    mean[i] = beta1 * mean[i] + take1 * g;
    square[i] = beta2 * square[i] + take2 * g * g;
  }
}

/// What would be subtracted if lr were 1 and nothing adapted.
template <class T>
LOCKSTEP_VECTORISED void direction(T* __restrict to, const T* __restrict parameter, const T* __restrict mean,
                                   const T* __restrict square, std::int64_t count, const Coefficients& c) {
  const auto correction1 = static_cast<T>(c[kCorrection1]);
  const auto root_correction2 = static_cast<T>(c[kRootCorrection2]);
  const auto eps = static_cast<T>(c[kEps]);
  const auto pull = static_cast<T>(c[kPull]);
  for (std::int64_t i = 0; i < count; ++i) {
    const T denominator = std::sqrt(square[i]) / root_correction2 + eps;
    to[i] = mean[i] / correction1 / denominator + pull * parameter[i];
  }
}

template <class T>
LOCKSTEP_VECTORISED void apply(T* __restrict parameter, const T* __restrict direction, std::int64_t count, T keep,
                               T step_size) {
  for (std::int64_t i = 0; i < count; ++i) parameter[i] = keep * parameter[i] - step_size * direction[i];
}

/// The squares of the parameter and of the direction.
template <class T>
Sums measure(const Coefficients& c, const Stretch<T>& stretch) {
  T* const* state = stretch.state;
  update_moments(state[0], state[1], stretch.gradient, stretch.count, c);
  std::array<T, kPieceElements> step;  // uninitialised: filled as far as it is used
  direction(step.data(), stretch.parameter, state[0], state[1], stretch.count, c);
  return {sum_of_squares(stretch.parameter, stretch.count), sum_of_squares(step.data(), stretch.count)};
}

template <class T>
void update(const Coefficients& c, const Stretch<T>& stretch) {
  T* const* state = stretch.state;
  if (c[kWasMeasured] == 0) update_moments(state[0], state[1], stretch.gradient, stretch.count, c);
  std::array<T, kPieceElements> step;  // uninitialised: filled as far as it is used
  direction(step.data(), stretch.parameter, state[0], state[1], stretch.count, c);
  apply(stretch.parameter, step.data(), stretch.count, static_cast<T>(c[kKeep]), static_cast<T>(c[kStepSize]));
}

void adapt_to_norm(Coefficients& c, const Options& options, double gradient_norm) {
  c[kScale] /= std::max(1.0, gradient_norm / options.at("max_grad_norm"));
}

void adapt(Coefficients& c, const Options& options, const Sums& sums, const Segment&) {
  c[kWasMeasured] = 1;
  const double parameter_norm = std::abs(c[kKeep]) * std::sqrt(sums[0]);
  const double step_norm = std::sqrt(sums[1]);
  double ratio = parameter_norm > 0 && step_norm > 0 ? parameter_norm / step_norm : 1;
  if (options.at("trust_clip") != 0) ratio = std::min(ratio, 1.0);
  c[kStepSize] *= ratio;
}

Needs needs(const Options& options) {
  return {.gradient_norm = options.at("max_grad_norm") != 0,
          .sums = options.at("weight_decay") != 0 || options.at("always_adapt") != 0};
}

Coefficients coefficients(const Options& options, std::int64_t step) {
  const GradientTerms terms = gradient_terms(options, options.at("decoupled_weight_decay") != 0);
  const bool is_corrected = options.at("bias_correction") != 0;
  Coefficients c{};
  c[kScale] = terms.sign;
  c[kBeta1] = options.at("beta1");
  c[kTake1] = options.at("grad_averaging") != 0 ? 1 - options.at("beta1") : 1;
  c[kBeta2] = options.at("beta2");
  c[kCorrection1] = is_corrected ? bias_correction(options.at("beta1"), step) : 1;
  c[kRootCorrection2] = is_corrected ? std::sqrt(bias_correction(options.at("beta2"), step)) : 1;
  c[kEps] = options.at("eps");
  c[kPull] = terms.pull;
  c[kKeep] = terms.keep;
  c[kStepSize] = options.at("lr");
  return c;
}

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
          .help = "Adam with steps in proportion to each parameter's norm, for large batches",
          .keys = {betas_key(),
                   eps_key(),
                   decoupled_weight_decay_key(),
                   trust_clip_key(),
                   always_adapt_key(),
                   {.name = "optim.max_grad_norm",
                    .type = KeyType::real,
                    .default_value = "1",
                    .help = "lamb: scale all gradients down to this 2-norm together; 0: as they are",
                    .min = 0},
                   {.name = "optim.bias_correction",
                    .type = KeyType::boolean,
                    .default_value = "true",
                    .help = "lamb: correct the means for beginning at zero"},
                   {.name = "optim.grad_averaging",
                    .type = KeyType::boolean,
                    .default_value = "true",
                    .help = "lamb: the mean takes 1 - beta1 of the gradient, not all of it"}},
          .read = read,
          .state_names = state_names,
          .coefficients = coefficients,
          .update32 = update<float>,
          .update64 = update<double>,
          .needs = needs,
          .adapt_to_norm = adapt_to_norm,
          .measure32 = measure<float>,
          .measure64 = measure<double>,
          .adapt = adapt,
          .counts_every_step = true};
}

}  // namespace lockstep::optim
