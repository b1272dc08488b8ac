// SPDX-License-Identifier: BSD-3-Clause
#include "optim/groups/parts.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include "core/text/parameter_names.hpp"
#include "core/text/table.hpp"

namespace lockstep::optim {

namespace {

const std::string kRest = "rest";

/// The keys of section `optim` that concern all parts.
bool is_common(const std::string& key) {
  static const std::set<std::string> common = {"part", "paramwise", "auto_scale_lr", "base_batch_size"};
  return common.contains(key);
}

KeySpec names_key() {
  return keys::words("names", "",
                     "Parameters of the part: names or blocks, such as conv1,block*. rest = parameters that no other "
                     "part matches. If empty, the name of the part is used");
}

void require_name(const std::string& name, const std::string& place) {
  const bool is_word = !name.empty() && std::isalpha(static_cast<unsigned char>(name.front())) != 0 &&
                       std::all_of(name.begin(), name.end(), [](char letter) {
                         return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_';
                       });
  if (is_word) return;
  throw ConfigError(place + ": '" + name + "' is not the name of a part; use letters, digits and underscores, as in " +
                    "generator,name=adam,lr=1e-4");
}

PartSettings read_part(const std::string& text, const Section& optim) {
  const std::string place = optim.cite("part") + ": '" + text + "'";
  const std::vector<std::string> options = entry_parts(text);
  PartSettings part{.name = options.front(), .optim = optim};
  require_name(part.name, place);
  Section given;
  given.declare(names_key());
  for (const auto& [key, value] : optim.values()) {
    if (!is_common(key)) given.declare(value.spec);
  }
  for (std::size_t i = 1; i < options.size(); ++i) set_option(given, options[i], place);
  for (const auto& [key, value] : given.values()) {
    if (key != "names" && !given.is_default(key)) part.optim.set(key, value.texts.front(), place);
  }
  const std::string& names = given.text("names");
  if (names != kRest) part.patterns = name_patterns(names.empty() ? part.name : names);
  return part;
}

/// The number of the part of a parameter.
/// @throws ConfigError  none or two
std::size_t part_of(const std::string& parameter, const std::vector<PartSettings>& parts, const std::string& place) {
  std::optional<std::size_t> found;
  std::optional<std::size_t> rest;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    if (parts[p].patterns.empty()) rest = p;
    if (!cover_name(parts[p].patterns, parameter)) continue;
    if (found) {
      throw ConfigError(place + ": parameter '" + parameter + "' belongs to two parts, " + parts[*found].name +
                        " and " + parts[p].name + "; change the option names of one of them");
    }
    found = p;
  }
  if (!found) found = rest;
  if (found) return *found;
  std::vector<std::string> names;
  for (const PartSettings& part : parts) names.push_back(part.name);
  throw ConfigError(place + ": parameter '" + parameter + "' belongs to none of the parts (" + joined(names, ", ") +
                    ")" + "; change the option names of one of them, or add a part with names=rest");
}

}  // namespace

KeySpec PartSettings::key() {
  return {.name = "optim.part",
          .type = KeyType::texts,
          .default_value = "",
          .help =
              "NAME,option=value: a part of the parameters with an optimizer, schedule and loss scale of its own. "
              "Options are names, and the other keys of section optim, such as generator,name=adam,lr=1e-4. Every "
              "trained parameter must belong to one part",
          .parts = {{.name = "NAME",
                     .type = KeyType::text,
                     .default_value = "",
                     .help = "name of the part",
                     .parts = {names_key()}}}};
}

std::vector<PartSettings> PartSettings::from(const Section& optim) {
  std::vector<PartSettings> parts;
  for (const std::string& text : optim.texts("part")) {
    if (text.empty()) continue;
    PartSettings part = read_part(text, optim);
    for (const PartSettings& other : parts) {
      const std::string cite = optim.cite("part") + ": ";
      if (other.name == part.name) throw ConfigError(cite + "two parts are named " + part.name);
      if (other.patterns.empty() && part.patterns.empty()) throw ConfigError(cite + "two parts have names=rest");
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

void add_children(std::vector<PartSettings>& parts, const Section& optim, const std::vector<std::string>& children,
                  std::span<const ParameterInfo> parameters) {
  const std::vector<PartSettings> given = parts;
  for (const std::string& child : children) {
    const bool is_free = std::none_of(parameters.begin(), parameters.end(), [&](const ParameterInfo& parameter) {
      return covers_name(child, parameter.name) &&
             std::any_of(given.begin(), given.end(), [&](const PartSettings& part) {
               return part.patterns.empty() || cover_name(part.patterns, parameter.name);
             });
    });
    if (is_free) parts.push_back({.name = child, .patterns = {child}, .optim = optim});
  }
}

std::map<std::string, std::size_t> assign_parts(const std::vector<PartSettings>& parts,
                                                std::span<const ParameterInfo> parameters, const std::string& place) {
  std::map<std::string, std::size_t> assigned;
  for (const ParameterInfo& parameter : parameters) {
    if (parameter.is_frozen) continue;
    const std::size_t part = part_of(parameter.name, parts, place);
    if (parameter.same_as.empty()) {
      assigned[parameter.name] = part;
    } else if (assigned.at(parameter.same_as) != part) {
      throw ConfigError(place + ": '" + parameter.name + "' is the same parameter as '" + parameter.same_as +
                        "', but belongs to another part; change the option names");
    }
  }
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const bool is_used =
        std::any_of(assigned.begin(), assigned.end(), [p](const auto& entry) { return entry.second == p; });
    if (!is_used) throw ConfigError(place + ": part " + parts[p].name + " has no trained parameter");
  }
  return assigned;
}

}  // namespace lockstep::optim
