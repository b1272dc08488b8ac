// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/former_options.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "core/text/text.hpp"

namespace lockstep {

namespace {

/// The option that replaces one of an earlier version.
struct NewOption {
  const KeySpec* key;
  std::string value;  ///< "" = no value means the same
  std::string hint = "";
};

/// The value that an option has so far; "" = its default.
using ValueOf = std::function<std::string(const std::string& key)>;

/// An option may have the name of a former one: then `translate` decides by the value, with "" for a value of today.
std::optional<NewOption> new_option_of(const std::vector<const KeySpec*>& keys, const std::string& name,
                                       const std::string& value, const ValueOf& value_of) {
  const bool is_in_use = std::ranges::any_of(keys, [&](const KeySpec* key) { return key->name == name; });
  for (const KeySpec* const key : keys) {
    if (!is_in_use && std::ranges::find(key->old_names, name) != key->old_names.end()) return NewOption{key, value};
    for (const FormerSetting& former : key->replaces) {
      if (former.key != name || (is_in_use && key->name != name)) continue;
      const std::string translated = former.translate(value, value_of(key->name));
      if (!is_in_use || !translated.empty()) return NewOption{key, translated, former.hint};
    }
  }
  return std::nullopt;
}

/// "interval" and "10" of "interval=10"; the second is empty if there is no sign.
std::pair<std::string, std::string> parts_of(const std::string& option) {
  const std::size_t sign = option.find('=');
  if (sign == std::string::npos) return {option, ""};
  return {trimmed(option.substr(0, sign)), trimmed(option.substr(sign + 1))};
}

}  // namespace

void refuse_former_option(const Section& options, const std::string& key, const std::string& value,
                          const std::string& place) {
  std::vector<const KeySpec*> keys;
  for (const auto& [name, declared] : options.values()) keys.push_back(&declared.spec);
  const auto replaced = new_option_of(keys, key, value, [&](const std::string& name) {
    return options.is_default(name) ? std::string() : options.values().at(name).texts.front();
  });
  if (!replaced) return;
  throw ConfigError(place + ": " + key + "=" + value + " was replaced by " + replaced->key->name +
                    (replaced->value.empty() ? "; " + replaced->hint : "=" + replaced->value));
}

std::string with_new_options(const KeySpec& key, const std::string& entry) {
  std::vector<std::string> words = split_list(entry, ',');
  const auto row = std::ranges::find(key.parts, words.front(), &KeySpec::name);
  if (row == key.parts.end()) return entry;
  std::vector<const KeySpec*> keys;
  for (const KeySpec& option : row->parts) keys.push_back(&option);
  const auto place_of = [&words](const std::string& name) {
    return std::ranges::find_if(words, [&](const std::string& word) { return word.starts_with(name + "="); });
  };
  const auto value_of = [&](const std::string& name) {
    const auto place = place_of(name);
    return place == words.end() ? std::string() : parts_of(*place).second;
  };
  bool is_changed = false;  // otherwise, the entry stays as it was written
  for (std::size_t i = 1; i < words.size();) {
    const auto [name, value] = parts_of(words[i]);
    const bool is_option = words[i].find('=') != std::string::npos;
    const auto replaced = is_option ? new_option_of(keys, name, value, value_of) : std::nullopt;
    if (!replaced) {
      ++i;
      continue;
    }
    is_changed = true;
    const std::string option = replaced->key->name + "=" + replaced->value;
    if (name == replaced->key->name) {
      words[i++] = option;
      continue;
    }
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
    if (replaced->value.empty()) continue;
    const auto place = place_of(replaced->key->name);
    if (place == words.end()) {
      words.insert(words.begin() + static_cast<std::ptrdiff_t>(i++), option);
    } else {
      *place = option;
    }
  }
  return is_changed ? joined(words, ",") : entry;
}

}  // namespace lockstep
