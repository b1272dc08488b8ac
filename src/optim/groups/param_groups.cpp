// SPDX-License-Identifier: BSD-3-Clause
#include "optim/groups/param_groups.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <set>

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

}  // namespace

double ParamGroupBuilder::lr_factor(const ParameterInfo& parameter) const {
  if (parameter.is_offset) return kinds_.dcn_offset_lr_mult.value_or(1);
  return is_bias(parameter.name) && !parameter.is_norm ? kinds_.bias_lr_mult.value_or(1) : 1;
}

double ParamGroupBuilder::decay_factor(const ParameterInfo& parameter) const {
  const std::pair<bool, std::optional<double>> multipliers[] = {
      {parameter.is_norm, kinds_.norm_decay_mult},
      {is_bias(parameter.name) && !parameter.is_offset, kinds_.bias_decay_mult},
      {parameter.is_depthwise, kinds_.dwconv_decay_mult},
      {parameter.dims == 1 && !parameter.is_offset, kinds_.flat_decay_mult},
  };
  for (const auto& [applies, multiplier] : multipliers) {
    if (applies && multiplier) return *multiplier;
  }
  return settings_.has_spared && (parameter.dims < 2 || parameter.is_undecayed) ? 0 : 1;
}

ParamGroupBuilder::Resolved ParamGroupBuilder::resolve(const ParameterInfo& parameter,
                                                       const Selection* selection) const {
  Resolved resolved{.group = selection != nullptr ? selection->group : "",
                    .options = selection != nullptr ? selection->options : base_};
  if (selection == nullptr) {
    resolved.options["lr"] *= lr_factor(parameter);
    resolved.options["weight_decay"] *= decay_factor(parameter);
  }
  if (kinds_.layer_decay != 1) resolved.options["lr"] *= std::pow(kinds_.layer_decay, parameter.layers_after);
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
  if (kinds_.bypasses_duplicates) return words + ", and has its options";
  throw ConfigError(settings_.place + ": " + words +
                    "; add bypass_duplicate=true to use the options of the first name");
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
      if (!is_plain()) result.remarks.push_back(remark_on_duplicate(parameter));
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
  if (!frozen.empty() && !is_plain()) result.remarks.push_back(remark_on_frozen(frozen));
  for (const Selection& selection : selections_) {
    if (used.contains(&selection)) continue;
    result.remarks.push_back(settings_.place + ": '" + selection.text + "' matches no parameter");
    result.unmatched.push_back(result.remarks.back());
  }
  return result;
}

std::vector<ParamGroup> build_groups(const Section& optim, const Rule& rule,
                                     std::span<const ParameterInfo> parameters) {
  return ParamGroupBuilder(optim, rule).build(parameters).groups;
}

}  // namespace lockstep::optim
