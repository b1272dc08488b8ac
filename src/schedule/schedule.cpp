// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/schedule/schedule.hpp>

#include <algorithm>

#include "core/text/text.hpp"
#include "schedule/curves.hpp"

namespace lockstep::schedule {

namespace {

std::string state_prefix(std::size_t place) { return "rule" + std::to_string(place) + "_"; }

/// The name under which a group has `option`; empty = it has none.
std::string name_in(const Numbers& options, const std::string& option) {
  if (options.contains(option)) return option;
  return option == "momentum" && options.contains("beta1") ? "beta1" : "";
}

bool concerns(const Schedule::ScheduledRule& rule, const std::string& group, const std::string& part) {
  return (rule.group.empty() || rule.group == group) && (rule.part.empty() || rule.part == part);
}

void require_known(const std::string& what, const std::string& name, const std::vector<std::string>& known) {
  if (name.empty() || std::find(known.begin(), known.end(), name) != known.end()) return;
  throw ConfigError("sched.rule: " + what + " '" + name + "' is unknown; choose one of: " + joined(known));
}

}  // namespace

std::string joined_names(const Numbers& numbers) {
  std::vector<std::string> names;
  for (const auto& [name, value] : numbers) names.push_back(name);
  return joined(names);
}

double Schedule::value(std::int64_t step, const Target& target) const {
  double value = target.base;
  for (const ScheduledRule& rule : rules_) {
    if (rule.option != target.option || !concerns(rule, target.group, target.part)) continue;
    value = rule.feedback ? rule.feedback->value(value) : rule.shape(rule.position(step), value);
  }
  return value;
}

void Schedule::apply(std::int64_t step, const GroupName& group, const Numbers& bases, Numbers& options) const {
  for (const ScheduledRule& rule : rules_) {
    if (!concerns(rule, group.name, group.part)) continue;
    const std::string name = name_in(options, rule.option);
    if (name.empty() || !bases.contains(name)) {
      throw ConfigError("sched.rule: of=" + rule.option + ": group '" + group.name +
                        "' does not have this option; choose one of: " + joined_names(options));
    }
    options[name] =
        value(step, {.option = rule.option, .group = group.name, .part = group.part, .base = bases.at(name)});
  }
}

std::vector<std::string> Schedule::moved(const GroupName& group, const Numbers& options) const {
  std::vector<std::string> names;
  for (const ScheduledRule& rule : rules_) {
    if (!concerns(rule, group.name, group.part)) continue;
    const std::string name = name_in(options, rule.option);
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

void Schedule::require_groups(const std::vector<GroupName>& groups) const {
  std::vector<std::string> parts;
  for (const GroupName& group : groups) {
    if (!group.part.empty() && (parts.empty() || parts.back() != group.part)) parts.push_back(group.part);
  }
  for (const ScheduledRule& rule : rules_) {
    if (!rule.part.empty() && parts.empty()) {
      throw ConfigError("sched.rule: part=" + rule.part + " requires parts of the parameters; set optim.part");
    }
    require_known("part", rule.part, parts);
    std::vector<std::string> names;
    for (const GroupName& group : groups) {
      if (rule.part.empty() || rule.part == group.part) names.push_back(group.name);
    }
    require_known("group", rule.group, names);
  }
}

bool Schedule::has_feedback() const {
  return std::any_of(rules_.begin(), rules_.end(), [](const ScheduledRule& rule) { return rule.feedback != nullptr; });
}

void Schedule::observe(std::int64_t step, const Numbers& measured) {
  for (ScheduledRule& rule : rules_) {
    if (rule.feedback) rule.feedback->observe(rule.position(step), measured);
  }
}

Numbers Schedule::state() const {
  Numbers all;
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    if (!rules_[i].feedback) continue;
    for (const auto& [name, value] : rules_[i].feedback->state()) all.emplace(state_prefix(i) + name, value);
  }
  return all;
}

void Schedule::load_state(const Numbers& state) {
  const Numbers own = this->state();
  const bool is_alike = std::equal(own.begin(), own.end(), state.begin(), state.end(),
                                   [](const auto& a, const auto& b) { return a.first == b.first; });
  if (!is_alike) throw ConfigError("sched.rule: the stored state does not match these rules: " + joined_names(state));
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    if (!rules_[i].feedback) continue;
    Numbers of_rule;
    for (const auto& [name, value] : rules_[i].feedback->state()) of_rule[name] = state.at(state_prefix(i) + name);
    rules_[i].feedback->load_state(of_rule);
  }
}

}  // namespace lockstep::schedule
