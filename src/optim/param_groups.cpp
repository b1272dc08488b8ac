// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/option_list.hpp>
#include <lockstep/optim/param_groups.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <sstream>

namespace lockstep::optim {

namespace {

const std::string kCustom = "custom:";
const std::string kPattern = "re:";

KeySpec multiplier_key(const std::string& name, const std::string& help) {
  return {.name = name, .type = KeyType::real, .default_value = "", .help = help, .min = 0};
}

KeySpecs kind_keys() {
  return {multiplier_key("bias_lr_mult", "factor on the lr of biases, but for those of norms"),
          multiplier_key("bias_decay_mult", "factor on the weight decay of biases"),
          multiplier_key("norm_decay_mult", "factor on the weight decay of batch, instance, group and layer norms"),
          multiplier_key("dwconv_decay_mult", "factor on the weight decay of depthwise convolutions"),
          multiplier_key("flat_decay_mult", "factor on the weight decay of parameters of one dimension"),
          multiplier_key("dcn_offset_lr_mult", "factor on the lr of what deformable convolutions compute offsets with"),
          {.name = "layer_decay",
           .type = KeyType::real,
           .default_value = "1",
           .help = "factor on the lr for each layer between a parameter's own and the output",
           .min = 0,
           .max = 1,
           .min_is_exclusive = true},
          {.name = "bypass_duplicate",
           .type = KeyType::boolean,
           .default_value = "false",
           .help = "a parameter with several names has the options of the first"}};
}

/// Beside options of the optimizer.
KeySpecs selection_keys() {
  return {multiplier_key("lr_mult", "factor on the lr"),
          multiplier_key("decay_mult", "factor on the weight decay"),
          {.name = "group",
           .type = KeyType::text,
           .default_value = "",
           .help = "a group of their own by this name, for sched.rule"}};
}

Options read_options(const Section& optim, const Rule& rule) {
  Options options = rule.read(optim);
  options["lr"] = optim.real("lr");
  options["weight_decay"] = optim.real("weight_decay");
  options["maximize"] = optim.boolean("maximize") ? 1 : 0;
  return options;
}

/// The options of the optimizer that may differ from group to group.
KeySpecs overridable_keys(const Section& optim, const Rule& rule) {
  KeySpecs keys;
  for (const char* name : {"lr", "weight_decay", "maximize"}) keys.push_back(optim.values().at(name).spec);
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

std::string number(double value, int digits) {
  std::ostringstream text;
  text.precision(digits);
  text << value;
  return text.str();
}

/// "lr*0.1" where a value differs from the common one; else "".
std::string difference(const std::string& option, double value, double common, int digits) {
  if (value == common) return "";
  if (option == "weight_decay" && value == 0) return "no_decay";
  if ((option != "lr" && option != "weight_decay") || common == 0) return option + "=" + number(value, digits);
  return (option == "lr" ? "lr*" : "decay*") + number(value / common, digits);
}

std::string joined(const std::vector<std::string>& names, const std::string& separator) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() || name.empty() ? "" : separator) + name;
  return text;
}

/// "3 frozen parameters are in no group: a, b, c"
std::string remark_on_frozen(std::vector<std::string> names) {
  constexpr std::size_t kMost = 5;
  const std::size_t count = names.size();
  if (count > kMost) {
    names.resize(kMost);
    names.push_back("...");
  }
  return std::to_string(count) + (count == 1 ? " frozen parameter is" : " frozen parameters are") +
         " in no group: " + joined(names, ", ");
}

bool is_bias(const std::string& name) { return name == "bias" || name.ends_with(".bias"); }

}  // namespace

bool ParamGroupBuilder::Selection::matches(const std::string& name) const {
  if (pattern) return std::regex_match(name, *pattern);
  return (name.find('.') == std::string::npos ? "." + name : name).find(infix) != std::string::npos;
}

ParamGroupBuilder::ParamGroupBuilder(const Section& optim, const Rule& rule)
    : place_(optim.cite("paramwise")),
      is_plain_(optim.texts("paramwise").empty()),
      spares_flat_(optim.text("no_decay") == "norms_biases"),
      base_(read_options(optim, rule)) {
  for (const KeySpec& key : kind_keys()) kinds_.declare(key);
  for (const std::string& text : optim.texts("paramwise")) read(text, optim, rule);
  sort_selections();
  if (spares_flat_ && multiplier("flat_decay_mult")) {
    throw ConfigError(place_ + ": flat_decay_mult has no place beside optim.no_decay=norms_biases, which is one");
  }
}

void ParamGroupBuilder::read(const std::string& text, const Section& optim, const Rule& rule) {
  if (text.starts_with(kCustom) || text.starts_with(kPattern)) {
    selections_.push_back(read_selection(text, optim, rule));
    return;
  }
  const std::string place = place_ + ": '" + text + "'";
  for (const std::string& option : split_list(text, ',')) {
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
  if (key.empty()) throw ConfigError(place + ": there is no name after the colon");
  if (first_option == parts.end()) throw ConfigError(place + ": give options, such as " + text + ",lr_mult=0.1");

  const KeySpecs overridable = overridable_keys(optim, rule);
  Section options;
  for (const KeySpec& spec : selection_keys()) options.declare(spec);
  for (const KeySpec& spec : overridable) options.declare(spec);
  for (auto option = first_option; option != parts.end(); ++option) set_option(options, *option, place);

  Section changed = optim;
  for (const KeySpec& spec : overridable) {
    const std::string name = spec.name.substr(spec.name.find('.') + 1);
    if (!options.is_default(name)) changed.set(name, options.values().at(name).texts.front(), place);
  }
  selection.options = read_options(changed, rule);
  if (!options.is_default("decay_mult")) require_weight_decay(optim, "decay_mult", place);
  for (const auto& [option, mult] : {std::pair{"lr", "lr_mult"}, std::pair{"weight_decay", "decay_mult"}}) {
    if (options.is_default(mult)) continue;
    if (!options.is_default(option)) throw ConfigError(place + ": " + option + " and " + mult + " exclude each other");
    selection.options[option] *= options.real(mult);
  }
  selection.group = options.text("group");
  try {
    if (is_pattern) selection.pattern.emplace(key);
  } catch (const std::regex_error& error) {
    throw ConfigError(place + ": '" + key + "' is no regular expression: " + error.what());
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

std::optional<double> ParamGroupBuilder::multiplier(const std::string& key) const {
  return kinds_.is_default(key) ? std::nullopt : std::optional(kinds_.real(key));
}

double ParamGroupBuilder::lr_factor(const ParameterInfo& parameter) const {
  if (parameter.is_offset) return multiplier("dcn_offset_lr_mult").value_or(1);
  return is_bias(parameter.name) && !parameter.is_norm ? multiplier("bias_lr_mult").value_or(1) : 1;
}

double ParamGroupBuilder::decay_factor(const ParameterInfo& parameter) const {
  const std::pair<bool, const char*> rules[] = {
      {parameter.is_norm, "norm_decay_mult"},
      {is_bias(parameter.name) && !parameter.is_offset, "bias_decay_mult"},
      {parameter.is_depthwise, "dwconv_decay_mult"},
      {parameter.dims == 1 && !parameter.is_offset, "flat_decay_mult"},
  };
  for (const auto& [applies, key] : rules) {
    if (applies && multiplier(key)) return *multiplier(key);
  }
  return spares_flat_ && parameter.dims < 2 ? 0 : 1;
}

ParamGroupBuilder::Resolved ParamGroupBuilder::resolve(const ParameterInfo& parameter,
                                                       const Selection* selection) const {
  Resolved resolved{.group = selection != nullptr ? selection->group : "",
                    .options = selection != nullptr ? selection->options : base_};
  if (selection == nullptr) {
    resolved.options["lr"] *= lr_factor(parameter);
    resolved.options["weight_decay"] *= decay_factor(parameter);
  }
  const double layer_decay = kinds_.real("layer_decay");
  if (layer_decay != 1) resolved.options["lr"] *= std::pow(layer_decay, parameter.layers_after);
  return resolved;
}

ParameterGroups ParamGroupBuilder::build(std::span<const ParameterInfo> parameters) const {
  ParameterGroups result;
  std::vector<Resolved> resolved;  // of each group
  std::vector<std::string> frozen;
  std::set<const Selection*> used;
  for (const ParameterInfo& parameter : parameters) {
    const auto selection = std::find_if(selections_.begin(), selections_.end(),
                                        [&](const Selection& s) { return s.matches(parameter.name); });
    const Selection* const chosen = selection == selections_.end() ? nullptr : &*selection;
    used.insert(chosen);
    if (parameter.is_frozen) {
      frozen.push_back(parameter.name);
      continue;
    }
    if (!parameter.same_as.empty()) {
      if (is_plain_) continue;
      const std::string words = "'" + parameter.name + "' is the same parameter as '" + parameter.same_as + "'";
      if (!kinds_.boolean("bypass_duplicate")) {
        throw ConfigError(place_ + ": " + words + "; add bypass_duplicate=true to go by the first name");
      }
      result.remarks.push_back(words + ", and has its options");
      continue;
    }
    const Resolved options = resolve(parameter, chosen);
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
  // What differs in nothing comes first: it gives the lr that is logged.
  std::stable_partition(result.groups.begin(), result.groups.end(),
                        [this](const ParamGroup& group) { return group.options == base_; });
  if (!frozen.empty() && !is_plain_) result.remarks.push_back(remark_on_frozen(frozen));
  for (const Selection& selection : selections_) {
    if (!used.contains(&selection))
      result.remarks.push_back(place_ + ": '" + selection.text + "' matches no parameter");
  }
  return result;
}

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
    throw ConfigError(place_ + ": two groups would be called '" + groups[i].name + "'; give them other names");
  }
}

std::vector<ParamGroup> build_groups(const Section& optim, const Rule& rule,
                                     std::span<const ParameterInfo> parameters) {
  return ParamGroupBuilder(optim, rule).build(parameters).groups;
}

std::vector<KeySpec> paramwise_parts() {
  return {{.name = "for kinds of parameters",
           .type = KeyType::text,
           .default_value = "",
           .help = "bias_lr_mult=2,norm_decay_mult=0",
           .parts = kind_keys()},
          {.name = "for names that hold `backbone`, or with re: match as a whole",
           .type = KeyType::text,
           .default_value = "",
           .help = "custom:backbone,lr_mult=0.1,decay_mult=0, or re:block[0-9]+\\..*,lr_mult=0.1; options of the "
                   "optimizer, too, as in momentum=0.5",
           .parts = selection_keys()}};
}

}  // namespace lockstep::optim
