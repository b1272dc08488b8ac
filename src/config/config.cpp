// SPDX-License-Identifier: BSD-3-Clause
#include "config/config.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/system/home_path.hpp"
#include "core/text/text.hpp"

namespace lockstep::config {

namespace {

/// Whether no INI file could hold this text.
bool is_unwritable(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == 0x7f || (byte < 0x20 && c != '\t');
  });
}

/// The key a user most likely meant: one spelled much like it, or one of the same last name in another section.
std::string likely_name(const std::string& name, const KeySpecs& specs) {
  std::vector<std::string> names;
  for (const KeySpec& spec : specs) names.push_back(spec.name);
  const std::string near = nearest_name(name, names);
  if (!near.empty()) return near;
  const auto last_name = [](const std::string& full) { return full.substr(full.rfind('.') + 1); };
  const auto same = std::find_if(names.begin(), names.end(),
                                 [&](const std::string& known) { return last_name(known) == last_name(name); });
  return same == names.end() ? "" : *same;
}

std::map<std::string, std::string> new_names_of(const KeySpecs& specs) {
  std::map<std::string, std::string> new_names;
  for (const KeySpec& spec : specs) {
    for (const std::string& old_name : spec.old_names) {
      const bool is_free = std::none_of(specs.begin(), specs.end(),
                                        [&old_name](const KeySpec& other) { return other.name == old_name; });
      if (is_free && new_names.emplace(old_name, spec.name).second) continue;
      throw std::logic_error("old name " + old_name + " of key " + spec.name + " belongs to another key");
    }
  }
  return new_names;
}

/// Whether a text is the former setting of its key, and not a key or a row of today with the same name.
bool is_former(const FormerSetting& former, const std::string& text, const KeySpecs& specs) {
  const auto key =
      std::find_if(specs.begin(), specs.end(), [&](const KeySpec& spec) { return spec.name == former.key; });
  if (former.word.empty()) return key == specs.end();
  if (key == specs.end() || split_list(text, ',').front() != former.word) return false;
  return std::none_of(key->parts.begin(), key->parts.end(),
                      [&](const KeySpec& row) { return row.name == former.word; });
}

void check_default(const KeySpec& spec) {
  const bool is_empty_list = spec.type == KeyType::texts && spec.default_value.empty();
  const std::string fault = is_empty_list ? "" : fault_in(spec, spec.default_value);
  if (!fault.empty()) throw std::logic_error("default of key " + spec.name + ": " + fault);
}

}  // namespace

std::string section_of(const std::string& name) {
  const std::size_t dot = name.find('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

std::string key_of(const std::string& name) { return name.substr(name.find('.') + 1); }

std::vector<std::string> section_names(const KeySpecs& specs) {
  std::vector<std::string> names;
  for (const KeySpec& spec : specs) {
    const std::string name = section_of(spec.name);
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

Config::Config(const KeySpecs& specs) {
  for (const KeySpec& spec : specs) {
    const std::string name = section_of(spec.name);
    Section& section = sections_.try_emplace(name, Section(name)).first->second;
    if (!section.has(key_of(spec.name))) {
      check_default(spec);
      section.declare(spec);
      specs_.push_back(spec);
    } else if (value(spec.name).spec.type != spec.type) {
      throw std::logic_error("key " + spec.name + " is declared with two types");
    }
  }
  new_names_ = new_names_of(specs_);
}

const Section& Config::section(const std::string& name) const {
  static const Section empty;
  const auto found = sections_.find(name);
  return found == sections_.end() ? empty : found->second;
}

const KeyValue& Config::value(const std::string& name) const {
  const auto& values = section(section_of(name)).values();
  const auto found = values.find(key_of(name));
  if (found == values.end()) throw std::logic_error("key " + name + " was never declared");
  return found->second;
}

void Config::set(const std::string& name, const std::string& text, const std::string& origin) {
  refuse_former(name, text, origin);
  Section& section = section_holding(name, origin);
  const KeyType type = section.values().at(key_of(name)).spec.type;
  const bool is_text = type == KeyType::text || type == KeyType::texts;
  const std::string value = is_text ? with_home(text) : trimmed(text);
  if (is_unwritable(value)) throw ConfigError(origin + ": " + name + ": a value must not contain control characters");
  section.set(key_of(name), value, origin);
}

std::optional<Config::Replacement> Config::replacement_of(const std::string& name, const std::string& text) const {
  for (const KeySpec& key : specs_) {
    for (const FormerSetting& former : key.replaces) {
      if (former.key == name && is_former(former, text, specs_)) return Replacement{&former, &key};
    }
  }
  return std::nullopt;
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
  const auto replacement = replacement_of(name, text);
  if (!replacement) return;
  const std::string value = translated(*replacement, text);
  throw ConfigError(origin + ": " + name + "=" + text + " was replaced by " + replacement->key->name +
                    (value.empty() ? "; " + replacement->former->hint : "=" + value));
}

Section& Config::section_holding(const std::string& name, const std::string& origin) {
  const auto found = sections_.find(section_of(name));
  if (found != sections_.end() && found->second.has(key_of(name))) return found->second;
  const std::string likely = likely_name(name, specs_);
  throw ConfigError(
      origin + ": key '" + name + "' is unknown; " +
      (likely.empty() ? "--help lists the sections and --help=SECTION their keys" : "did you mean '" + likely + "'?"));
}

}  // namespace lockstep::config
