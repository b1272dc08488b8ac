// SPDX-License-Identifier: BSD-3-Clause
// What several rules share.
#pragma once

#include <lockstep/optim/rule.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::optim {

/// lr, weight_decay, maximize: what every rule reads.
KeySpecs shared_option_keys();

/// lr and weight_decay with the defaults of a rule, where these differ from those of shared_option_keys.
KeySpec lr_key(const std::string& default_value);
KeySpec weight_decay_key(const std::string& default_value);
KeySpec betas_key(const std::string& default_value = "0.9, 0.999");
KeySpec eps_key(const std::string& default_value = "1e-8");
KeySpec decoupled_weight_decay_key();
KeySpec trust_clip_key();
KeySpec always_adapt_key();

/// momentum, dampening, nesterov.
KeySpecs momentum_keys();
/// @throws ConfigError  nesterov without momentum or with dampening
Options read_momentum(const Section& optim);

/// The options of these keys: numbers as they are, flags as 0 or 1, and "beta1" and "beta2". Keys of other types are
/// left out.
/// @throws ConfigError  `betas` are not two numbers in [0, 1)
Options read_keys(const Section& optim, const KeySpecs& keys);
template <KeySpecs (*kKeys)()>
Options read_keys(const Section& optim) {
  return read_keys(optim, kKeys());
}

/// A row whose options are those of its keys, as read_keys reads them.
template <KeySpecs (*kKeys)()>
Rule rule_of_keys(std::string name, std::string help, decltype(Rule::state_names) states, decltype(Rule::kind) kind) {
  return {.name = std::move(name),
          .help = std::move(help),
          .keys = kKeys(),
          .read = read_keys<kKeys>,
          .state_names = states,
          .kind = std::move(kind)};
}

/// Names of states: "momentum_buffer" if there is momentum.
std::vector<std::string> momentum_states(const Options& options);
/// Names of states: "exp_avg", "exp_avg_sq".
std::vector<std::string> moment_states(const Options& options);

/// None = the text is no number above 0.
std::optional<double> positive_number(const std::string& text);

/// The names that are not empty, with separators between them.
std::string joined(const std::vector<std::string>& names, const std::string& separator);

}  // namespace lockstep::optim
