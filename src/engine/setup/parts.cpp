// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/parts.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>

#include <algorithm>
#include <set>
#include <utility>

#include "core/text/text.hpp"
#include "engine/setup/optimizer.hpp"
#include "engine/setup/strategy_table.hpp"
#include "engine/steps/rows.hpp"
#include "optim/groups/parts.hpp"

namespace lockstep::engine {

namespace {

/// The text that messages begin with.
std::string place_of_parts(const Sections& sections) {
  const Section& optim = sections.at("optim");
  return optim.texts("part").empty() ? sections.at("strategy").cite("separate") : optim.cite("part");
}

/// The children of the model with trained parameters.
std::vector<std::string> trained_children(const models::Model& model) {
  std::vector<std::string> names;
  for (const auto& child : model.named_children()) {
    const auto parameters = child.value()->parameters();
    const bool is_trained =
        std::any_of(parameters.begin(), parameters.end(), [](const auto& each) { return each.requires_grad(); });
    if (is_trained) names.push_back(child.key());
  }
  return names;
}

/// The step updates exactly these parts.
void require_parts_of_step(const StepRow& step, const std::vector<optim::PartSettings>& parts,
                           const std::string& place) {
  if (step.parts.empty()) return;
  std::set<std::string> names;
  for (const optim::PartSettings& part : parts) names.insert(part.name);
  const std::set<std::string> wanted(step.parts.begin(), step.parts.end());
  if (names == wanted) return;
  throw ConfigError(place + ": train.step=" + step.name + " updates the parts " + joined(step.parts) +
                    ", but the configuration has " + (names.empty() ? "none" : joined({names.begin(), names.end()})) +
                    "; set optim.part for each");
}

/// The parameters that the builder of a part sees: its own parameters, and those that are not trained.
std::vector<optim::ParameterInfo> parameters_of_part(const std::vector<optim::ParameterInfo>& all,
                                                     const std::map<std::string, std::size_t>& numbers,
                                                     std::size_t part) {
  std::vector<optim::ParameterInfo> own;
  for (const optim::ParameterInfo& parameter : all) {
    const auto number = numbers.find(parameter.same_as.empty() ? parameter.name : parameter.same_as);
    if (parameter.is_frozen || number->second == part) own.push_back(parameter);
  }
  return own;
}

void add_once(std::vector<std::string>& texts, const std::string& text) {
  if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
}

}  // namespace

bool separates_parts(const Sections& sections, const Registry& registry) {
  return sections.at("strategy").boolean("separate") ||
         !chosen_step(sections.at("train"), registry.steps).parts.empty();
}

void require_parts(const Sections& sections, const Registry& registry) {
  const std::vector<optim::PartSettings> parts = optim::PartSettings::from(sections.at("optim"));
  const bool is_separate = separates_parts(sections, registry);
  if (parts.empty() && !is_separate) return;
  std::vector<const Section*> optims = {&sections.at("optim")};
  if (!sections.at("strategy").boolean("separate")) optims.clear();
  for (const optim::PartSettings& part : parts) optims.push_back(&part.optim);
  const bool has_lanes = sections.at("train").integer("lanes") > 0;
  const bool is_sharded = sections.at("strategy").text("name") == "sharded";
  for (const Section* optim : optims) {
    const optim::Rule& rule = chosen_rule(*optim, registry.rules);
    if (rule.is_whole() && has_lanes && is_sharded) {
      throw ConfigError(sections.at("train").cite("lanes") + " cannot be combined with strategy.name=sharded and " +
                        rule.name + " of a part: each parameter has one owner; use strategy.name=ddp");
    }
    if (!rule.uses_closure()) continue;
    throw ConfigError(place_of_parts(sections) + ": " + rule.name +
                      " cannot update a part, because it evaluates the loss of all parameters several times; use "
                      "another optimizer");
  }
  if (!is_separate) return;
  const std::string why =
      " cannot be combined with parts that are reduced separately (strategy.separate, or a training "
      "step that updates its parts in turn): ";
  if (sections.at("train").integer("lanes") > 0) {
    throw ConfigError(sections.at("train").cite("lanes") + why +
                      "a lane has one backward pass for all parameters; set train.lanes=0");
  }
  const StrategySettings strategy = StrategySettings::from(sections.at("strategy"));
  if (strategy.name.value == "sharded" && strategy.stage > 1) {
    throw ConfigError(sections.at("strategy").cite("stage") + why +
                      "the gradients of all parts are divided in one reduction; use strategy.stage=1");
  }
  if (sections.at("ddp").text("comm_hook") != "none") {
    throw ConfigError(sections.at("ddp").cite("comm_hook") + why +
                      "a hook has one state for all buckets; set ddp.comm_hook=none");
  }
  if (!strategy.post_local.averages.value.empty()) {
    throw ConfigError(strategy.post_local.averages.cite + why +
                      "it averages the parameters after one update of all; leave strategy.post_local empty");
  }
}

PartPlans plan_parts(const Sections& sections, const Registry& registry, const models::Model& model, int world_size) {
  const Section& optim = sections.at("optim");
  const StepRow& step = chosen_step(sections.at("train"), registry.steps);
  const std::vector<optim::ParameterInfo> parameters = describe_parameters(model);
  PartPlans plans;
  std::vector<optim::PartSettings> parts = optim::PartSettings::from(optim);
  const std::string place = place_of_parts(sections);
  if (sections.at("strategy").boolean("separate")) {
    optim::add_children(parts, optim, trained_children(model), parameters);
  }
  require_parts_of_step(step, parts, place);
  if (parts.empty()) {
    const optim::Rule& rule = chosen_rule(optim, registry.rules);
    GroupPlan plan = plan_groups(optim, sections.at("train"), rule, parameters, world_size);
    plans.parts.push_back({.name = "", .rule = &rule, .groups = std::move(plan.groups)});
    plans.remarks = std::move(plan.remarks);
    if (!plan.scaling.empty()) plans.scalings.push_back(plan.scaling);
    return plans;
  }
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  plans.numbers = optim::assign_parts(parts, parameters, place);
  std::map<std::string, std::size_t> unmatched;  // texts of optim.paramwise, and the number of parts without a match
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const optim::Rule& rule = chosen_rule(parts[p].optim, registry.rules);
    GroupPlan plan = plan_groups(parts[p].optim, sections.at("train"), rule,
                                 parameters_of_part(parameters, plans.numbers, p), world_size);
    plans.parts.push_back({.name = parts[p].name, .rule = &rule, .groups = std::move(plan.groups)});
    if (!plan.scaling.empty()) plans.scalings.push_back(parts[p].name + ": " + plan.scaling);
    for (const std::string& text : plan.unmatched) ++unmatched[text];
    for (const std::string& remark : plan.remarks) {
      if (!unmatched.contains(remark)) add_once(plans.remarks, remark);
    }
  }
  for (const auto& [text, count] : unmatched) {
    if (count == parts.size()) plans.remarks.push_back(text);
  }
  return plans;
}

}  // namespace lockstep::engine
