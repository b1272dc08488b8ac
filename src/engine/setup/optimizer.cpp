// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/optimizer.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "core/text/parse_value.hpp"
#include "core/text/table.hpp"
#include "core/text/text.hpp"
#include "core/text/text_stream.hpp"
#include "engine/settings/nonfinite.hpp"
#include "engine/settings/train_settings.hpp"
#include "engine/setup/strategy.hpp"
#include "engine/steps/rows.hpp"
#include "models/script/parameter_roles.hpp"
#include "optim/groups/parts.hpp"

namespace lockstep::engine {

namespace {

/// The requirement that an optimizer needs that compares losses with their own gradients.
void require_own_gradients(const ClipSettings& clip, const Precision& precision, const NonfiniteSettings& nonfinite,
                           const Section& ddp, const std::string& rule) {
  const std::string why =
      " cannot be combined with " + rule + ", because the closure compares losses and gradients of unscaled values";
  if (clip.clip.is_on()) throw ConfigError(clip.cite + why);
  if (precision.scaler) throw ConfigError(precision.name.cite + ": fp16" + why + "; use bf16");
  if (nonfinite.policy.value != "stop") throw ConfigError(nonfinite.policy.cite + why);
  const Cited<std::string> comm_hook = cited_text(ddp, "comm_hook");
  if (comm_hook.value != "none") throw ConfigError(comm_hook.cite + why);
}

/// The parts of a value of train.clip_grad, which earlier versions had: "norm:1.0:p=1", "value:0.5" or "".
struct FormerClip {
  std::string norm = {};
  std::string norm_type = {};
  std::string value = {};
};

/// All parts are empty if the text has another form.
FormerClip former_clip(const std::string& text) {
  const std::vector<std::string> words = split(text, ':');
  FormerClip clip;
  if (text.empty()) clip.norm = "0";
  if (words.size() < 2) return clip;
  if (words[0] == "value") clip.value = words[1];
  if (words[0] == "norm") clip.norm = words[1];
  if (words.size() > 2 && words[2].starts_with("p=")) clip.norm_type = words[2].substr(2);
  return clip;
}

/// The p of train.clip_norm_type.
double norm_type_in(const Section& train) {
  const std::string& text = train.text("clip_norm_type");
  const std::optional<double> p = parse_any_real(text);
  if (p && *p > 0) return *p;
  throw ConfigError(train.cite("clip_norm_type") + ": '" + text + "' is neither a number above 0 nor inf");
}

std::string sentence_of(const optim::LrScale& scale, double lr) {
  if (scale.base_batch == 0) return "";
  TextWriter text;
  text << "effective batch " << scale.batch << ", optim.base_batch_size " << scale.base_batch << ": lr " << lr << " -> "
       << lr * scale.factor();
  return text.str();
}

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
  throw ConfigError(place + ": train.step_kind=" + step.name + " updates the parts " + joined(step.parts) +
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

/// The groups of a run before its first step.
struct GroupPlan {
  std::vector<optim::ParamGroup> groups;  ///< learning rates scaled where optim.auto_scale_lr says so
  std::vector<std::string> remarks;       ///< remarks for the log
  std::vector<std::string> unmatched;     ///< see optim::ParameterGroups
  std::string scaling;                    ///< "effective batch 96, optim.base_batch_size 48: lr 0.1 -> 0.2", or ""
};

GroupPlan plan_groups(const Section& optim, const Section& train, const optim::Rule& rule,
                      const std::vector<optim::ParameterInfo>& parameters, int world_size) {
  const BatchSettings batch = BatchSettings::from(train);
  const std::int64_t per_step = batch.global_batch_size.value;
  const std::int64_t bound = batch.micro_batch.value;
  const optim::LrScale scale =
      optim::lr_scale(optim, per_step, bound == 0 ? per_step : std::min(per_step, bound * world_size));
  optim::ParameterGroups built = optim::ParamGroupBuilder(optim, rule).build(parameters);
  optim::scale_lr(built.groups, scale);
  return {.groups = std::move(built.groups),
          .remarks = std::move(built.remarks),
          .unmatched = std::move(built.unmatched),
          .scaling = sentence_of(scale, optim.real("lr"))};
}

}  // namespace

KeySpecs ClipSettings::keys() {
  const auto replacing_clip_grad = [](const KeySpec& key, std::string FormerClip::*part) {
    const auto translate = [part](const std::string& former, const std::string&) { return former_clip(former).*part; };
    return keys::replacing(
        key,
        {.key = "train.clip_grad", .translate = translate, .hint = "set train.clip_norm=1.0 or train.clip_value=0.5"});
  };
  const KeySpec norm = keys::real(
      "train.clip_norm", "0", "Gradient clipping: scale gradients to a norm of at most this value. 0 = disabled", 0);
  const KeySpec norm_type = keys::text("train.clip_norm_type", "2",
                                       "The p of the norm of train.clip_norm: a number above 0, or inf = the largest "
                                       "magnitude");
  const KeySpec scope =
      keys::choice("train.clip_scope", "all",
                   "Clip by the norm of all gradients, or by the norm of each parameter group", {"all", "group"});
  const KeySpec value =
      keys::real("train.clip_value", "0", "Gradient clipping: clamp each element to [-value, value]. 0 = disabled", 0);
  return {replacing_clip_grad(norm, &FormerClip::norm),
          keys::expert(keys::not_read_by(replacing_clip_grad(norm_type, &FormerClip::norm_type), norm.name, {"0"})),
          keys::expert(keys::not_read_by(scope, norm.name, {"0"})),
          keys::expert(replacing_clip_grad(value, &FormerClip::value))};
}

ClipSettings ClipSettings::from(const Section& train) {
  const optim::Clip clip{.max_norm = train.real("clip_norm"),
                         .norm_type = norm_type_in(train),
                         .max_value = train.real("clip_value"),
                         .is_by_group = train.text("clip_scope") == "group"};
  if (clip.max_norm > 0 && clip.max_value > 0) {
    throw ConfigError(train.cite("clip_value") + ": train.clip_norm is set, too; set one of them to 0");
  }
  return {.clip = clip, .cite = train.cite(clip.max_value > 0 ? "clip_value" : "clip_norm")};
}

const optim::Rule& chosen_rule(const Section& optim, const std::vector<optim::Rule>& rules) {
  return find_row(rules, optim.text("name"), optim.cite("name"));
}

optim::OptimWrapper::WrapperOptions update_options(const Sections& sections, const Precision& precision,
                                                   std::int64_t micro_batches, const optim::Rule& rule) {
  const ClipSettings clip = ClipSettings::from(sections.at("train"));
  const NonfiniteSettings nonfinite = NonfiniteSettings::from(sections.at("train"));
  optim::OptimWrapper::WrapperOptions options{.accumulation_steps = micro_batches};
  options.scaler = precision.scaler;
  options.skips_nonfinite = nonfinite.policy.value != "stop";
  options.clip = clip.clip;
  if (!rule.uses_closure()) return options;
  require_own_gradients(clip, precision, nonfinite, sections.at("ddp"), rule.name);
  return options;
}

std::vector<optim::ParameterInfo> describe_parameters(const models::Model& model) {
  std::vector<optim::ParameterInfo> parameters;
  for (const models::ParameterRole& role : models::parameter_roles(model)) {
    parameters.push_back({.name = role.name,
                          .dims = role.tensor.dim(),
                          .count = role.tensor.numel(),
                          .is_norm = role.kind == models::LayerKind::norm,
                          .is_depthwise = role.kind == models::LayerKind::depthwise,
                          .is_offset = role.is_offset,
                          .is_frozen = !role.tensor.requires_grad(),
                          .same_as = role.same_as,
                          .layers_after = role.layers_after,
                          .is_undecayed = role.is_undecayed});
  }
  return parameters;
}

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
