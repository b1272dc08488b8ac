// SPDX-License-Identifier: BSD-3-Clause
#include "optim/rules/option_limits.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <cmath>

#include "core/text/text.hpp"

namespace lockstep::optim {

namespace {

std::string text_of(double value) { return number_text(value, 6); }

/// An option of `betas`, which the key does not let be 1.
bool is_beta(const std::string& option) { return option == "beta1" || option == "beta2"; }

std::string fault_of(const std::string& option, double value, const KeySpec& key) {
  if (key.type == KeyType::boolean) return option + " is true or false, which a schedule cannot change";
  const std::string would_be = option + " would be " + text_of(value) + ", which is not ";
  if (is_beta(option)) return value >= 0 && value < 1 ? "" : would_be + "a number in [0, 1)";
  const bool is_above = key.min_is_exclusive ? value > key.min : value >= key.min;
  return is_above && value <= key.max && std::isfinite(value) ? "" : would_be + range_of(key);
}

}  // namespace

OptionLimits::OptionLimits(const Rule& rule, std::vector<std::string> state_names)
    : rule_(&rule), state_names_(std::move(state_names)) {
  for (const KeySpec& key : optim_keys({rule})) {
    const std::string name = key.name.substr(key.name.find('.') + 1);
    if (name == "betas") {
      keys_.insert({{"beta1", key}, {"beta2", key}});
    } else {
      keys_.emplace(name, key);
    }
  }
}

void OptionLimits::require(const Options& options, const std::vector<std::string>& names, const std::string& group,
                           std::int64_t step) const {
  const std::string fault = fault_in(options, names);
  if (fault.empty()) return;
  throw ConfigError("sched.rule: in step " + std::to_string(step + 1) + " of group '" + group + "' " + fault);
}

/// "" where nothing is wrong.
std::string OptionLimits::fault_in(const Options& options, const std::vector<std::string>& names) const {
  static const KeySpec any_number = keys::real("", "0", "");
  bool may_need_states = false;
  for (const std::string& name : names) {
    const auto key = keys_.find(name);
    std::string fault = fault_of(name, options.at(name), key == keys_.end() ? any_number : key->second);
    if (!fault.empty()) return fault;
    may_need_states = may_need_states || name != "lr";
  }
  if (!may_need_states) return "";
  const std::vector<std::string> needed = rule_->state_names(options);
  // States go by their places.
  std::size_t kept = 0;
  while (kept < std::min(needed.size(), state_names_.size()) && needed[kept] == state_names_[kept]) ++kept;
  if (kept == needed.size()) return "";
  std::string moved;
  for (const std::string& name : names) {
    if (name != "lr") moved += (moved.empty() ? "" : ", ") + name + " would be " + text_of(options.at(name));
  }
  return moved + ", but " + rule_->name + " keeps no " + needed[kept] +
         " if the configuration sets 0; set a value above 0";
}

}  // namespace lockstep::optim
