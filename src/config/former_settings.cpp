// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <algorithm>

#include "config/config.hpp"
#include "core/text/table.hpp"
#include "core/text/text.hpp"

// Settings of earlier versions: which ones there are, and what they are called today.
namespace lockstep::config {

namespace {

/// Whether a text is the former setting of its key, and not a key or a row of today with the same name.
bool is_former(const FormerSetting& former, const std::string& text, const KeySpecs& specs) {
  const auto key =
      std::find_if(specs.begin(), specs.end(), [&](const KeySpec& spec) { return spec.name == former.key; });
  if (former.word.empty()) return key == specs.end();  // Config::todays_value has values of the key itself
  if (key == specs.end() || split_list(text, ',').front() != former.word) return false;
  return std::none_of(key->parts.begin(), key->parts.end(),
                      [&](const KeySpec& row) { return row.name == former.word; });
}

}  // namespace

std::vector<Config::Replacement> Config::replacements_of(const std::string& name, const std::string& text) const {
  std::vector<Replacement> replacements;
  for (const KeySpec& key : specs_) {
    for (const FormerSetting& former : key.replaces) {
      if (former.key == name && is_former(former, text, specs_)) replacements.push_back({&former, &key});
    }
  }
  return replacements;
}

bool Config::was_read(const FormerSetting& former) const {
  const std::size_t equals = former.only_with.find('=');
  return equals == std::string::npos ||
         value(former.only_with.substr(0, equals)).texts.front() == former.only_with.substr(equals + 1);
}

std::string Config::translated(const Replacement& replacement, const std::string& text) const {
  const std::string& name = replacement.key->name;
  const bool is_default = section(section_of(name)).is_default(key_of(name));
  return replacement.former->translate(text, is_default ? "" : value(name).texts.front());
}

void Config::refuse_former(const std::string& name, const std::string& text, const std::string& origin) const {
  if (const auto found = new_names_.find(name); found != new_names_.end()) {
    throw ConfigError(origin + ": key '" + name + "' was renamed to '" + found->second + "'");
  }
  if (const std::vector<Replacement> replacements = replacements_of(name, text); !replacements.empty()) {
    std::vector<std::string> settings;
    for (const Replacement& replacement : replacements) {
      const std::string value = translated(replacement, text);
      if (!value.empty()) settings.push_back(replacement.key->name + "=" + value);
    }
    const auto& [former, key] = replacements.front();
    throw ConfigError(origin + ": " + name + "=" + text + " was replaced by " +
                      (settings.empty() ? key->name + "; " + former->hint : joined(settings, " and ")) +
                      (former->note.empty() ? "" : "; " + former->note));
  }
  const std::string today = todays_value(name, text);
  if (today != text)
    throw ConfigError(origin + ": " + name + "=" + text + " is the form of earlier versions; write " + name + "=" +
                      today);
}

std::string Config::todays_value(const std::string& name, const std::string& text) const {
  const auto found = sections_.find(section_of(name));
  if (found == sections_.end() || !found->second.has(key_of(name))) return text;
  const KeySpec& spec = value(name).spec;
  for (const FormerSetting& former : spec.replaces) {
    const std::string today = former.key == name && former.word.empty() ? former.translate(text, "") : "";
    if (!today.empty()) return today;
  }
  const std::string list = with_commas(spec, text);
  if (!list.empty()) return list;
  if (spec.parts.empty() || (spec.type != KeyType::text && spec.type != KeyType::texts)) return text;
  KeySpecs of_section;
  for (const auto& [key, value] : found->second.values()) of_section.push_back(value.spec);
  return todays_entry(text, spec.parts, of_section);
}

}  // namespace lockstep::config
