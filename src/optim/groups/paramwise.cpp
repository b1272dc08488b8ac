// SPDX-License-Identifier: BSD-3-Clause
// Texts of optim.paramwise.
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <cctype>

#include "core/text/table.hpp"
#include "optim/groups/param_groups.hpp"
#include "optim/rules/options.hpp"

namespace lockstep::optim {

namespace {

const std::string kCustom = "custom:";
const std::string kPattern = "re:";

KeySpec multiplier_key(const std::string& name, const std::string& help) { return keys::real(name, "", help, 0); }

/// Keys in addition to options of the optimizer.
KeySpecs selection_keys() {
  return {multiplier_key("lr_mult", "Factor on the lr"), multiplier_key("decay_mult", "Factor on the weight decay"),
          keys::text("group", "", "Name of the parameter group, for sched.rule")};
}

/// Keys for kinds of parameters.
KeySpecs kind_keys() {
  return {
      multiplier_key("bias_lr_mult", "Factor on the lr of biases, except those of normalization layers"),
      multiplier_key("bias_decay_mult", "Factor on the weight decay of biases"),
      multiplier_key("norm_decay_mult", "Factor on the weight decay of batch, instance, group and layer norms"),
      multiplier_key("dwconv_decay_mult", "Factor on the weight decay of depthwise convolutions"),
      multiplier_key("flat_decay_mult", "Factor on the weight decay of one-dimensional parameters"),
      multiplier_key("dcn_offset_lr_mult", "Factor on the lr of the offset layers of deformable convolutions"),
      keys::real_above("layer_decay", 0, 1, "1",
                       "Layer-wise lr decay: factor on the lr for each layer between a parameter and the output"),
      keys::boolean("bypass_duplicate", "false", "A parameter with several names has the options of its first name")};
}

/// The options that stand in a text of `optim.paramwise`, for help.
KeySpecs paramwise_parts() {
  return {{.name = "by the kind of a parameter",
           .type = KeyType::text,
           .default_value = "",
           .help = "bias_lr_mult=2,norm_decay_mult=0",
           .parts = kind_keys()},
          {.name = "by the name of a parameter (custom: contains, re: matches completely)",
           .type = KeyType::text,
           .default_value = "",
           .help = "custom:backbone,lr_mult=0.1,decay_mult=0 or re:block[0-9]+\\..*,lr_mult=0.1. Options of the "
                   "optimizer are accepted, too, for example momentum=0.5",
           .parts = selection_keys()}};
}

Options read_options(const Section& optim, const Rule& rule) {
  Options options = rule.read(optim);
  options.merge(read_keys(optim, shared_option_keys()));
  return options;
}

/// The options of the optimizer that may differ from group to group.
KeySpecs overridable_keys(const Rule& rule) {
  KeySpecs keys = shared_option_keys();
  keys.insert(keys.end(), rule.keys.begin(), rule.keys.end());
  return keys;
}

/// Whether a part of a text is an option; a pattern may hold commas of its own.
bool is_option(const std::string& part) {
  const std::size_t equals = part.find('=');
  if (equals == std::string::npos || equals == 0) return false;
  return std::all_of(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(equals), [](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_' || letter == ' ';
  });
}

void require_weight_decay(const Section& optim, const std::string& option, const std::string& place) {
  if (optim.real("weight_decay") != 0 || !optim.is_default("weight_decay")) return;
  throw ConfigError(place + ": " + option + " needs optim.weight_decay");
}

/// The options of all, changed by those that a text gives.
Options options_with(const Section& given, const Section& optim, const Rule& rule, const std::string& place) {
  Section changed = optim;
  for (const KeySpec& spec : overridable_keys(rule)) {
    const std::string name = spec.name.substr(spec.name.find('.') + 1);
    if (!given.is_default(name)) changed.set(name, given.values().at(name).texts.front(), place);
  }
  Options options = read_options(changed, rule);
  if (!given.is_default("decay_mult")) require_weight_decay(optim, "decay_mult", place);
  for (const auto& [option, mult] : {std::pair{"lr", "lr_mult"}, std::pair{"weight_decay", "decay_mult"}}) {
    if (given.is_default(mult)) continue;
    if (!given.is_default(option)) throw ConfigError(place + ": " + option + " and " + mult + " cannot be combined");
    options[option] *= given.real(mult);
  }
  return options;
}

}  // namespace

KeySpecs group_keys() {
  return {keys::choice(
              "optim.no_decay", "none",
              "Parameters without weight decay. norms_biases = all parameters with fewer than two dimensions, and the "
              "tokens and positions of vit",
              {"none", "norms_biases"}),
          {.name = "optim.paramwise",
           .type = KeyType::texts,
           .default_value = "",
           .help = "Options for selected parameters; `trainer config --groups` shows the resulting parameter groups",
           .parts = paramwise_parts()}};
}

bool ParamGroupBuilder::Selection::matches(const std::string& name) const {
  if (pattern) return std::regex_match(name, *pattern);
  return (name.find('.') == std::string::npos ? "." + name : name).find(infix) != std::string::npos;
}

ParamGroupBuilder::ParamGroupBuilder(const Section& optim, const Rule& rule)
    : has_spared_(optim.text("no_decay") == "norms_biases"),
      paramwise_(optim.texts("paramwise")),
      place_(optim.cite("paramwise")),
      base_(read_options(optim, rule)) {
  for (const KeySpec& key : kind_keys()) kinds_.declare(key);
  for (const std::string& text : paramwise_) read(text, optim, rule);
  sort_selections();
  if (has_spared_ && multiplier("flat_decay_mult")) {
    throw ConfigError(
        place_ +
        ": flat_decay_mult cannot be combined with optim.no_decay=norms_biases, which sets the same multiplier");
  }
}

void ParamGroupBuilder::read(const std::string& text, const Section& optim, const Rule& rule) {
  if (text.starts_with(kCustom) || text.starts_with(kPattern)) {
    selections_.push_back(read_selection(text, optim, rule));
    return;
  }
  const std::string place = place_ + ": '" + text + "'";
  for (const std::string& option : entry_parts(text)) {
    set_option(kinds_, option, place);
    const std::string key = trimmed(option.substr(0, option.find('=')));
    if (key.ends_with("decay_mult")) require_weight_decay(optim, key, place);
  }
}

ParamGroupBuilder::Selection ParamGroupBuilder::read_selection(const std::string& text, const Section& optim,
                                                               const Rule& rule) const {
  const std::string place = place_ + ": '" + text + "'";
  std::vector<std::string> parts = split_list(text, ',');
  const auto first_option = std::find_if(parts.begin() + 1, parts.end(), is_option);
  Selection selection{
      .text = joined({parts.begin(), first_option}, ","), .infix = {}, .pattern = {}, .group = {}, .options = {}};
  const bool is_pattern = text.starts_with(kPattern);
  const std::string key = selection.text.substr((is_pattern ? kPattern : kCustom).size());
  if (key.empty()) throw ConfigError(place + ": the name after the colon is missing");
  if (first_option == parts.end()) throw ConfigError(place + ": give options, such as " + text + ",lr_mult=0.1");

  Section given;
  for (const KeySpec& spec : selection_keys()) given.declare(spec);
  for (const KeySpec& spec : overridable_keys(rule)) given.declare(spec);
  for (const std::string& option : with_lists({first_option, parts.end()})) set_option(given, option, place);
  selection.options = options_with(given, optim, rule, place);
  selection.group = given.text("group");
  try {
    if (is_pattern) selection.pattern.emplace(key);
  } catch (const std::regex_error& error) {
    throw ConfigError(place + ": '" + key + "' is not a regular expression: " + error.what());
  }
  selection.infix = key;
  return selection;
}

/// Patterns as they were written, then infixes: the longest first, and equally long ones by the alphabet.
void ParamGroupBuilder::sort_selections() {
  const auto infixes = std::stable_partition(selections_.begin(), selections_.end(),
                                             [](const Selection& s) { return s.pattern.has_value(); });
  std::sort(infixes, selections_.end(), [](const Selection& a, const Selection& b) {
    return a.infix.size() != b.infix.size() ? a.infix.size() > b.infix.size() : a.infix < b.infix;
  });
  const auto twice = std::adjacent_find(infixes, selections_.end(),
                                        [](const Selection& a, const Selection& b) { return a.infix == b.infix; });
  if (twice != selections_.end()) throw ConfigError(place_ + ": '" + twice->text + "' is given twice");
}

}  // namespace lockstep::optim
