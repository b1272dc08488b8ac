// SPDX-License-Identifier: BSD-3-Clause
// What several rules share.
#pragma once

#include <lockstep/optim/rule.hpp>

#include <optional>
#include <string>
#include <vector>

namespace lockstep::optim {

/// lr, weight_decay, maximize: what every rule reads.
KeySpecs shared_option_keys();
/// Adds "lr", "weight_decay" and "maximize".
void read_shared_options(const Section& optim, Options& options);

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

/// None = the text is no number above 0.
std::optional<double> positive_number(const std::string& text);

/// The names that are not empty, with separators between them.
std::string joined(const std::vector<std::string>& names, const std::string& separator);

/// The change of a gradient by most rules: sign * gradient + l2_coefficient * parameter.
struct GradientTerms {
  double sign = 1;            ///< -1 to maximize
  double l2_coefficient = 0;  ///< weight decay that is added to the gradient
  double decay_factor = 1;    ///< decoupled weight decay: multiplies the parameter
};
GradientTerms gradient_terms(const Options& options, bool is_decoupled);

/// 1 - beta^step: what corrects a mean that began at zero.
double bias_correction(double beta, std::int64_t step);

}  // namespace lockstep::optim
