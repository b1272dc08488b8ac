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
/// @throws ConfigError  nesterov without momentum or with dampening
Options read_momentum(const Section& optim);

/// The options of these keys: numbers as they are, flags as 0 or 1, and `betas`. Keys of other types are left out.
Options read_keys(const Section& optim, const KeySpecs& keys);
template <KeySpecs (*kKeys)()>
Options read_keys(const Section& optim) {
  return read_keys(optim, kKeys());
}

/// Adds the keys that are read as they are: numbers, and flags as 0 or 1.
void read_numbers(const Section& optim, Options& options, const std::vector<std::string>& keys);
void read_flags(const Section& optim, Options& options, const std::vector<std::string>& keys);

/// Names of states: "momentum_buffer" if there is momentum.
std::vector<std::string> momentum_states(const Options& options);
/// Names of states: "exp_avg", "exp_avg_sq".
std::vector<std::string> moment_states(const Options& options);

/// None = the text is no number above 0.
std::optional<double> positive_number(const std::string& text);

/// The names that are not empty, with separators between them.
std::string joined(const std::vector<std::string>& names, const std::string& separator);

}  // namespace lockstep::optim
