// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>

#include "kernel.hpp"
#include "options.hpp"
#include "piece_sums.hpp"
#include "rules.hpp"

namespace lockstep::optim {

namespace {

enum : std::size_t { kSign, kPull, kLr, kMomentum, kAdd, kNesterov, kRatio, kJointNorm };

/// The gradient with weight decay, scaled by the ratio of the parameter.
template <class T>
LOCKSTEP_VECTORISED void scaled_gradient(T* __restrict scaled, const T* __restrict gradient,
                                         const T* __restrict parameter, std::int64_t count, const Coefficients& c) {
  const auto sign = static_cast<T>(c[kSign]);
  const auto pull = static_cast<T>(c[kPull]);
  const auto ratio = static_cast<T>(c[kRatio]);
  for (std::int64_t i = 0; i < count; ++i) scaled[i] = ratio * (sign * gradient[i] + pull * parameter[i]);
}

template <class T>
LOCKSTEP_VECTORISED void descend(T* __restrict parameter, const T* __restrict gradient, T* __restrict buffer,
                                 std::int64_t count, const Coefficients& c) {
  const auto lr = static_cast<T>(c[kLr]);
  const auto momentum = static_cast<T>(c[kMomentum]);
  const auto add = static_cast<T>(c[kAdd]);
  const bool nesterov = c[kNesterov] != 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = gradient[i];
    const T velocity = momentum * buffer[i] + add * g;
    buffer[i] = velocity;
    parameter[i] -= lr * (nesterov ? g + momentum * velocity : velocity);
  }
}

template <class T>
LOCKSTEP_VECTORISED void descend(T* __restrict parameter, const T* __restrict gradient, std::int64_t count, T lr) {
  for (std::int64_t i = 0; i < count; ++i) parameter[i] -= lr * gradient[i];
}

template <class T>
void update(const Coefficients& c, const Stretch<T>& stretch) {
  std::array<T, kPieceElements> scaled;  // uninitialised: filled as far as it is used
  scaled_gradient(scaled.data(), stretch.gradient, stretch.parameter, stretch.count, c);
  if (c[kMomentum] == 0) {
    descend(stretch.parameter, scaled.data(), stretch.count, static_cast<T>(c[kLr]));
  } else {
    descend(stretch.parameter, scaled.data(), stretch.state[0], stretch.count, c);
  }
}

/// The squares of the parameter, and of the gradient without or (joint_norm) with weight decay.
template <class T>
Sums measure(const Coefficients& c, const Stretch<T>& stretch) {
  const double of_parameter = sum_of_squares(stretch.parameter, stretch.count);
  if (c[kJointNorm] == 0) return {of_parameter, sum_of_squares(stretch.gradient, stretch.count)};
  std::array<T, kPieceElements> decayed;  // uninitialised: filled as far as it is used
  scaled_gradient(decayed.data(), stretch.gradient, stretch.parameter, stretch.count, c);
  return {of_parameter, sum_of_squares(decayed.data(), stretch.count)};
}

/// How far a parameter moves in relation to its own size.
double trust_ratio(const Options& options, double parameter_norm, double gradient_norm) {
  const bool is_joint = options.at("joint_norm") != 0;
  const double divisor =
      is_joint ? gradient_norm : gradient_norm + options.at("weight_decay") * parameter_norm + options.at("eps");
  const double ratio = options.at("trust_coefficient") * parameter_norm / divisor;
  return options.at("trust_clip") != 0 ? std::min(ratio / options.at("lr"), 1.0) : ratio;
}

void adapt_lars(Coefficients& c, const Options& options, const Sums& sums, const Segment& segment) {
  if (sums[0] == 0 || sums[1] == 0) return;
  if (options.at("adapt_vectors") == 0 && segment.shape.size() == 1) return;
  c[kRatio] = trust_ratio(options, std::sqrt(sums[0]), std::sqrt(sums[1]));
}

void adapt_larc(Coefficients& c, const Options& options, const Sums& sums, const Segment&) {
  if (sums[0] == 0 || sums[1] == 0) {
    c[kPull] = 0;
  } else {
    c[kRatio] = trust_ratio(options, std::sqrt(sums[0]), std::sqrt(sums[1]));
  }
}

Needs needs(const Options& options) {
  return {.sums = options.at("weight_decay") != 0 || options.at("always_adapt") != 0};
}

Coefficients coefficients(const Options& options, std::int64_t step) {
  const GradientTerms terms = gradient_terms(options, /*is_decoupled=*/false);
  Coefficients c{};
  c[kSign] = terms.sign;
  c[kPull] = terms.pull;
  c[kLr] = options.at("lr");
  c[kMomentum] = options.at("momentum");
  c[kAdd] = step == 1 ? 1 : 1 - options.at("dampening");  // as in sgd
  c[kNesterov] = options.at("nesterov");
  c[kRatio] = 1;
  c[kJointNorm] = options.at("joint_norm");
  return c;
}

/// What both rules read.
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
  keys.push_back({.name = "optim.trust_coefficient",
                  .type = KeyType::real,
                  .default_value = "0.001",
                  .help = "lars, larc: length of a step by that of the parameter, at lr 1; 0.02 is usual for larc",
                  .min = 0});
  keys.push_back(trust_clip_key());
  keys.push_back(always_adapt_key());
  keys.push_back({.name = "optim.joint_norm",
                  .type = KeyType::boolean,
                  .default_value = "false",
                  .help = "lars: divide by the norm of gradient and weight decay together, not by the sum of norms"});
  keys.push_back({.name = "optim.adapt_vectors",
                  .type = KeyType::boolean,
                  .default_value = "true",
                  .help = "lars: adapt to the norms of parameters of one dimension, too"});
  return keys;
}

Rule make_rule(const std::string& name, const std::string& help) {
  return {.name = name,
          .help = help,
          .keys = keys(),
          .read = nullptr,
          .state_names = state_names,
          .coefficients = coefficients,
          .update32 = update<float>,
          .update64 = update<double>,
          .needs = needs,
          .measure32 = measure<float>,
          .measure64 = measure<double>,
          .adapt = nullptr};
}

}  // namespace

Rule lars_rule() {
  Rule rule = make_rule("lars", "momentum with steps in proportion to each parameter's norm, for large batches");
  rule.read = read_lars;
  rule.adapt = adapt_lars;
  return rule;
}

Rule larc_rule() {
  Rule rule = make_rule("larc", "lars for every parameter; with trust_clip no step is longer than lr allows");
  rule.read = read_larc;
  rule.adapt = adapt_larc;
  return rule;
}

}  // namespace lockstep::optim
