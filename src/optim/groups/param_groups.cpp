// SPDX-License-Identifier: BSD-3-Clause
#include "optim/groups/param_groups.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "core/text/text.hpp"
#include "optim/rules/options.hpp"

namespace lockstep::optim {

namespace {

/// "3 frozen parameters are in no group: a, b, c"
std::string remark_on_frozen(std::vector<std::string> names) {
  constexpr std::size_t kMaxNames = 5;
  const std::size_t count = names.size();
  if (count > kMaxNames) {
    names.resize(kMaxNames);
    names.push_back("...");
  }
  return std::to_string(count) + (count == 1 ? " frozen parameter is" : " frozen parameters are") +
         " in no group: " + joined(names, ", ");
}

bool is_bias(const std::string& name) { return name == "bias" || name.ends_with(".bias"); }

/// "lr*0.1" where a value differs from the common one; else "".
std::string difference(const std::string& option, double value, double common, int digits) {
  if (value == common) return "";
  if (option == "weight_decay" && value == 0) return "no_decay";
  if ((option != "lr" && option != "weight_decay") || common == 0) return option + "=" + number_text(value, digits);
  return (option == "lr" ? "lr*" : "decay*") + number_text(value / common, digits);
}

}  // namespace

std::optional<double> ParamGroupBuilder::multiplier(const std::string& key) const {
  return kinds_.is_default(key) ? std::nullopt : std::optional(kinds_.real(key));
}

double ParamGroupBuilder::lr_factor(const ParameterInfo& parameter) const {
  if (parameter.is_offset) return multiplier("dcn_offset_lr_mult").value_or(1);
  return is_bias(parameter.name) && !parameter.is_norm ? multiplier("bias_lr_mult").value_or(1) : 1;
}

double ParamGroupBuilder::decay_factor(const ParameterInfo& parameter) const {
  const std::pair<bool, std::optional<double>> multipliers[] = {
      {parameter.is_norm, multiplier("norm_decay_mult")},
      {is_bias(parameter.name) && !parameter.is_offset, multiplier("bias_decay_mult")},
      {parameter.is_depthwise, multiplier("dwconv_decay_mult")},
      {parameter.dims == 1 && !parameter.is_offset, multiplier("flat_decay_mult")},
  };
  for (const auto& [applies, factor] : multipliers) {
    if (applies && factor) return *factor;
  }
  return has_spared_ && (parameter.dims < 2 || parameter.is_undecayed) ? 0 : 1;
}

ParamGroupBuilder::Resolved ParamGroupBuilder::resolve(const ParameterInfo& parameter,
                                                       const Selection* selection) const {
  Resolved resolved{.group = selection != nullptr ? selection->group : "",
                    .options = selection != nullptr ? selection->options : base_};
  if (selection == nullptr) {
    resolved.options["lr"] *= lr_factor(parameter);
    resolved.options["weight_decay"] *= decay_factor(parameter);
  }
  resolved.options["lr"] *= std::pow(kinds_.real("layer_decay"), parameter.layers_after);
  return resolved;
}

/// The first that matches; null = none does.
const ParamGroupBuilder::Selection* ParamGroupBuilder::selection_of(const std::string& parameter) const {
  const auto found = std::find_if(selections_.begin(), selections_.end(),
                                  [&](const Selection& selection) { return selection.matches(parameter); });
  return found == selections_.end() ? nullptr : &*found;
}

std::string ParamGroupBuilder::remark_on_duplicate(const ParameterInfo& parameter) const {
  const std::string words = "'" + parameter.name + "' is the same parameter as '" + parameter.same_as + "'";
  if (kinds_.boolean("bypass_duplicate")) return words + ", and has its options";
  throw ConfigError(place_ + ": " + words + "; add bypass_duplicate=true to use the options of the first name");
}

ParameterGroups ParamGroupBuilder::build(std::span<const ParameterInfo> parameters) const {
  ParameterGroups result;
  std::vector<Resolved> resolved;  // settings of each group
  std::vector<std::string> frozen;
  std::set<const Selection*> used;
  for (const ParameterInfo& parameter : parameters) {
    const Selection* const selection = selection_of(parameter.name);
    used.insert(selection);
    if (parameter.is_frozen) {
      frozen.push_back(parameter.name);
      continue;
    }
    if (!parameter.same_as.empty()) {
      if (!paramwise_.empty()) result.remarks.push_back(remark_on_duplicate(parameter));
      continue;
    }
    const Resolved options = resolve(parameter, selection);
    const auto known = std::find(resolved.begin(), resolved.end(), options);
    const auto place = static_cast<std::size_t>(known - resolved.begin());
    if (known == resolved.end()) {
      resolved.push_back(options);
      result.groups.push_back(
          {.name = {}, .options = options.options, .base_lr = options.options.at("lr"), .parameters = {}});
    }
    result.groups[place].parameters.push_back(parameter.name);
  }
  name_groups(result.groups, resolved);
  // The group that differs in nothing comes first: it gives the lr that is logged.
  std::stable_partition(result.groups.begin(), result.groups.end(),
                        [this](const ParamGroup& group) { return group.options == base_; });
  if (!frozen.empty() && !paramwise_.empty()) result.remarks.push_back(remark_on_frozen(frozen));
  for (const Selection& selection : selections_) {
    if (used.contains(&selection)) continue;
    result.remarks.push_back(place_ + ": '" + selection.text + "' matches no parameter");
    result.unmatched.push_back(result.remarks.back());
  }
  return result;
}

std::vector<ParamGroup> build_groups(const Section& optim, const Rule& rule,
                                     std::span<const ParameterInfo> parameters) {
  return ParamGroupBuilder(optim, rule).build(parameters).groups;
}

// ---- names: what differs from the options of all

/// "" where nothing differs.
std::string ParamGroupBuilder::name_of(const Resolved& group, int digits) const {
  if (!group.group.empty() && kinds_.real("layer_decay") == 1) return group.group;
  std::vector<std::string> parts = {group.group};
  for (const char* first : {"lr", "weight_decay"}) {
    parts.push_back(difference(first, group.options.at(first), base_.at(first), digits));
  }
  for (const auto& [option, value] : group.options) {
    if (option != "lr" && option != "weight_decay")
      parts.push_back(difference(option, value, base_.at(option), digits));
  }
  return joined(parts, "+");
}

void ParamGroupBuilder::name_groups(std::vector<ParamGroup>& groups, const std::vector<Resolved>& resolved) const {
  constexpr int kShort = 6;
  constexpr int kExact = 17;
  const bool decays_differ = std::any_of(resolved.begin(), resolved.end(), [this](const Resolved& group) {
    return group.options.at("weight_decay") != base_.at("weight_decay");
  });
  const auto name = [&](const Resolved& group, int digits) {
    if (groups.size() == 1 && group.group.empty()) return std::string("all");
    const std::string differences = name_of(group, digits);
    return !differences.empty() ? differences : std::string(decays_differ ? "decay" : "rest");
  };
  std::multiset<std::string> names;
  for (const Resolved& group : resolved) names.insert(name(group, kShort));
  std::set<std::string> taken;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string brief = name(resolved[i], kShort);
    groups[i].name = names.count(brief) == 1 ? brief : name(resolved[i], kExact);
    if (taken.insert(groups[i].name).second) continue;
    throw ConfigError(place_ + ": two groups have the name '" + groups[i].name + "'; rename one of them");
  }
}

// ---- learning rates that follow the batch

KeySpecs lr_scale_keys() {
  const auto only_scaled = [](const KeySpec& key) {
    return keys::expert(keys::not_read_by(key, "optim.auto_scale_lr", {"false", "no", "off", "0"}));
  };
  return {keys::boolean("optim.auto_scale_lr", "false",
                        "Multiply the learning rates by the batch size divided by optim.base_batch_size"),
          keys::expert(keys::integer("optim.base_batch_size", "0",
                                     "Batch size for which optim.lr was chosen; required by optim.auto_scale_lr", 0,
                                     1 << 30)),
          only_scaled(keys::choice("optim.lr_scaling", "linear",
                                   "Factor of optim.auto_scale_lr: the ratio of the batch sizes, or its square root",
                                   {"linear", "sqrt"})),
          only_scaled(keys::boolean(
              "optim.include_accumulation", "true",
              "optim.auto_scale_lr uses the batch size of a complete step. If false, gradient accumulation "
              "is not counted, only one forward pass of all ranks"))};
}

LrScale lr_scale(const Section& optim, std::int64_t samples_per_step, std::int64_t samples_per_forward) {
  LrScale scale{.batch = optim.boolean("include_accumulation") ? samples_per_step : samples_per_forward,
                .is_square_root = optim.text("lr_scaling") == "sqrt"};
  if (!optim.boolean("auto_scale_lr")) return scale;
  scale.base_batch = optim.integer("base_batch_size");
  if (scale.base_batch > 0) return scale;
  throw ConfigError(optim.cite("auto_scale_lr") +
                    " requires optim.base_batch_size, the batch size for which optim.lr was chosen");
}

double LrScale::factor() const {
  if (base_batch == 0) return 1;
  const double ratio = static_cast<double>(batch) / static_cast<double>(base_batch);
  return is_square_root ? std::sqrt(ratio) : ratio;
}

void scale_lr(std::span<ParamGroup> groups, const LrScale& scale) {
  const bool is_late = std::any_of(groups.begin(), groups.end(), [](const ParamGroup& g) { return g.is_scheduled; });
  if (is_late) throw std::logic_error("scale_lr: a schedule already changes the learning rates; scale them first");
  for (ParamGroup& group : groups) {
    group.base_lr *= scale.factor();
    group.options.at("lr") *= scale.factor();
  }
}

}  // namespace lockstep::optim
