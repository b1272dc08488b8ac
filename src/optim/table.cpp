// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <algorithm>

#include "rules.hpp"

namespace lockstep::optim {

namespace {

std::vector<std::string> names_of(const std::vector<Rule>& rules) {
  std::vector<std::string> names;
  for (const Rule& rule : rules) names.push_back(rule.name);
  return names;
}

/// The keys that every rule reads.
KeySpecs common_keys(const std::vector<Rule>& rules) {
  return {{.name = "optim.name",
           .type = KeyType::choice,
           .default_value = "sgd",
           .help = "how a step updates the parameters",
           .choices = names_of(rules)},
          {.name = "optim.lr",
           .type = KeyType::real,
           .default_value = "0.02",
           .help = "base learning rate, which sched.rule multiplies; adamw wants about 0.001",
           .min = 0},
          {.name = "optim.weight_decay",
           .type = KeyType::real,
           .default_value = "0",
           .help = "pull towards zero: added to the gradient by sgd, decoupled from it by adamw (0.01 is usual there)",
           .min = 0},
          {.name = "optim.maximize",
           .type = KeyType::boolean,
           .default_value = "false",
           .help = "climb instead of descend"},
          {.name = "optim.no_decay",
           .type = KeyType::choice,
           .default_value = "none",
           .help = "norms_biases: no weight decay on parameters of fewer than two dimensions",
           .choices = {"none", "norms_biases"}}};
}

bool has_name(const KeySpecs& keys, const std::string& name) {
  return std::any_of(keys.begin(), keys.end(), [&name](const KeySpec& key) { return key.name == name; });
}

}  // namespace

const std::vector<Rule>& builtin_rules() {
  static const std::vector<Rule> rules = {sgd_rule(), adamw_rule()};
  return rules;
}

const Rule& find_rule(std::string_view name, const std::vector<Rule>& rules) {
  const auto found = std::find_if(rules.begin(), rules.end(), [name](const Rule& rule) { return rule.name == name; });
  if (found != rules.end()) return *found;
  const std::vector<std::string> names = names_of(rules);
  std::string list;
  for (const std::string& known : names) list += (list.empty() ? "" : ", ") + known;
  const std::string near = nearest_name(std::string(name), names);
  throw ConfigError("optimizer '" + std::string(name) + "' is unknown; choose one of: " + list +
                    (near.empty() ? "" : "; did you mean '" + near + "'?"));
}

KeySpecs optim_keys(const std::vector<Rule>& rules) {
  KeySpecs keys = common_keys(rules);
  for (const Rule& rule : rules) {
    for (const KeySpec& key : rule.keys) {
      if (!has_name(keys, key.name)) keys.push_back(key);  // rules may share a key, such as betas
    }
  }
  return keys;
}

}  // namespace lockstep::optim
