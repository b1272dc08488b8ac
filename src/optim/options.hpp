// SPDX-License-Identifier: BSD-3-Clause
// Keys that several rules read.
#pragma once

#include <lockstep/optim/optimizer.hpp>

namespace lockstep::optim {

KeySpec betas_key();
/// Adds "beta1" and "beta2".
/// @throws ConfigError  not two numbers in [0, 1)
void read_betas(const Section& optim, Options& options);

KeySpec eps_key();
KeySpec amsgrad_key();
KeySpec decoupled_weight_decay_key();
KeySpec trust_clip_key();
KeySpec always_adapt_key();

/// momentum, dampening, nesterov.
KeySpecs momentum_keys();
/// Adds "momentum", "dampening" and "nesterov".
/// @throws ConfigError  nesterov without momentum or with dampening
void read_momentum(const Section& optim, Options& options);

/// Adds the keys that are read as they are: numbers, and flags as 0 or 1.
void read_numbers(const Section& optim, Options& options, const std::vector<std::string>& keys);
void read_flags(const Section& optim, Options& options, const std::vector<std::string>& keys);

/// What most rules do to a gradient on its way: sign * gradient + pull * parameter.
struct GradientTerms {
  double sign = 1;  ///< -1 to maximize
  double pull = 0;  ///< weight decay that is added to the gradient
  double keep = 1;  ///< weight decay that is not: what multiplies the parameter
};
GradientTerms gradient_terms(const Options& options, bool is_decoupled);

/// 1 - beta^step: what corrects a mean that began at zero.
double bias_correction(double beta, std::int64_t step);

}  // namespace lockstep::optim
