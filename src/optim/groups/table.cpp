// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/table.hpp"

#include <lockstep/core/keys.hpp>
#include <lockstep/optim/rule.hpp>

#include "optim/groups/param_groups.hpp"
#include "optim/groups/parts.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

std::vector<std::string> names_of(const std::vector<Rule>& rules) {
  std::vector<std::string> names;
  for (const Rule& rule : rules) names.push_back(rule.name);
  return names;
}

KeySpec name_key(const std::vector<Rule>& rules) {
  return keys::choice("optim.name", "adamw", "Optimizer that updates the parameters", names_of(rules));
}

/// The keys that do not depend on the rule.
KeySpecs common_keys(const std::vector<Rule>& rules) {
  KeySpecs keys = keys::titled("Optimizer and parameter groups", {name_key(rules)});
  for (const KeySpecs& more : {shared_option_keys(), group_keys(), lr_scale_keys()}) {
    keys.insert(keys.end(), more.begin(), more.end());
  }
  keys.push_back(keys::expert(PartSettings::key()));
  return keys;
}

}  // namespace

const std::vector<Rule>& builtin_rules() {
  static const std::vector<Rule> rules = {sgd_rule(),       adam_rule(),   adamw_rule(), adagrad_rule(), rmsprop_rule(),
                                          adadelta_rule(),  adamax_rule(), nadam_rule(), radam_rule(),   asgd_rule(),
                                          rprop_rule(),     lion_rule(),   lars_rule(),  larc_rule(),    lamb_rule(),
                                          adafactor_rule(), muon_rule(),   lbfgs_rule()};
  return rules;
}

const Rule& find_rule(std::string_view name, const std::vector<Rule>& rules) {
  return find_row(rules, name, "optim.name");
}

KeySpecs optim_keys(const std::vector<Rule>& rules) {
  return keys_of_rows(common_keys(rules), rules, {"optim.name", "optim.part"});
}

const ElementRule* Rule::elements() const noexcept {
  const auto* const measured = std::get_if<TensorRule>(&kind);
  return measured != nullptr ? &measured->elements : std::get_if<ElementRule>(&kind);
}

bool Rule::supports_tensors() const noexcept {
  const ElementRule* const rule = elements();
  return rule == nullptr || rule->fused != nullptr || rule->rows != nullptr;
}

StateShape Rule::state_shape() const noexcept {
  if (const auto* const whole = std::get_if<WholeRule>(&kind)) return whole->state_shape;
  const auto* const rule = std::get_if<ClosureRule>(&kind);
  return rule != nullptr ? rule->state_shape : nullptr;
}

}  // namespace lockstep::optim
