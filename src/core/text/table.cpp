// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/table.hpp"

#include <functional>
#include <optional>

namespace lockstep {

namespace {

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// "betas" of "optim.betas" and of "betas".
std::string option_name(const std::string& full_name) { return full_name.substr(full_name.find('.') + 1); }

bool is_in_parentheses(const std::string& text) { return text.size() > 1 && text.front() == '(' && text.back() == ')'; }

/// "(A | B)" with today's form of each entry.
std::string todays_entries(const std::string& text, const KeySpecs& forms, const KeySpecs& more) {
  std::vector<std::string> entries = split_list(text.substr(1, text.size() - 2), '|');
  for (std::string& entry : entries) entry = todays_entry(entry, forms, more);
  return "(" + joined(entries, " | ") + ")";
}

/// The options of the form that an entry names, or of all forms if it names none of them.
KeySpecs options_for(const std::string& name, const KeySpecs& forms, const KeySpecs& more) {
  KeySpecs options;
  const auto add = [&options](const KeySpecs& keys) { options.insert(options.end(), keys.begin(), keys.end()); };
  const bool is_form = std::ranges::find(forms, name, &KeySpec::name) != forms.end();
  for (const KeySpec& form : forms) {
    if (!is_form || form.name == name) add(form.parts);
  }
  add(more);
  return options;
}

/// The option that replaces one of an earlier version.
struct NewOption {
  std::string name;
  std::string value;  ///< "" = no value means the same
};

/// The value that an option has so far; "" = its default.
using ValueOf = std::function<std::string(const std::string& name)>;

/// An option of today may have the name of a former one: then `translate` decides by the value, with "" for a value of
/// today.
std::optional<NewOption> new_option_of(const KeySpecs& keys, const std::string& name, const std::string& value,
                                       const ValueOf& value_of) {
  const auto has_name = [&name](const std::string& full_name) { return option_name(full_name) == name; };
  const bool is_in_use = std::ranges::any_of(keys, has_name, &KeySpec::name);
  for (const KeySpec& key : keys) {
    const std::string new_name = option_name(key.name);
    if (!is_in_use && std::ranges::any_of(key.old_names, has_name)) return NewOption{new_name, value};
    for (const FormerSetting& former : key.replaces) {
      if (!has_name(former.key) || (is_in_use && new_name != name)) continue;
      const std::string translated = former.translate(value, value_of(new_name));
      if (!is_in_use || !translated.empty()) return NewOption{new_name, translated};
    }
  }
  return std::nullopt;
}

/// A list of an option that has slashes between its elements, with commas; "" if it is none.
std::string list_of_today(const KeySpecs& keys, const std::string& name, const std::string& value) {
  const auto key = std::ranges::find_if(keys, [&name](const KeySpec& spec) { return option_name(spec.name) == name; });
  return key == keys.end() ? "" : with_commas(*key, value);
}

}  // namespace

void add_reader(KeySpec& key, const std::string& choice, const std::string& default_value,
                const std::vector<std::string>& selectors) {
  key.readers.selectors = selectors;
  key.readers.defaults.emplace(choice, default_value);
  if (default_value != key.default_value) key.default_value = "auto";
}

std::vector<std::string> with_lists(const std::vector<std::string>& words) {
  std::vector<std::string> parts;
  for (const std::string& word : words) {
    const bool continues =
        !parts.empty() && parts.back().find('=') != std::string::npos && word.find('=') == std::string::npos;
    if (continues) {
      parts.back() += "," + word;
    } else {
      parts.push_back(word);
    }
  }
  return parts;
}

std::vector<std::string> entry_parts(const std::string& entry) { return with_lists(split_list(entry, ',')); }

std::string todays_entry(const std::string& entry, const KeySpecs& forms, const KeySpecs& more) {
  const std::vector<std::string> parts = entry_parts(entry);
  const auto form =
      std::ranges::find_if(forms, [&](const KeySpec& each) { return has(each.old_names, parts.front()); });
  const KeySpecs keys = options_for(form == forms.end() ? parts.front() : form->name, forms, more);
  std::vector<std::string> today;
  const auto place_of = [&today](const std::string& name) {
    return std::ranges::find_if(today, [&](const std::string& part) { return part.starts_with(name + "="); });
  };
  const auto value_of = [&](const std::string& name) {
    const auto place = place_of(name);
    return place == today.end() ? std::string() : place->substr(name.size() + 1);
  };
  for (const std::string& part : parts) {
    const std::size_t equals = part.find('=');
    const std::string name = trimmed(part.substr(0, equals));
    const std::string value = equals == std::string::npos ? "" : trimmed(part.substr(equals + 1));
    if (equals == std::string::npos) {
      today.push_back(today.empty() && form != forms.end() ? form->name : part);
    } else if (is_in_parentheses(value)) {
      today.push_back(part.substr(0, equals + 1) + todays_entries(value, forms, more));
    } else if (const auto replaced = new_option_of(keys, name, value, value_of)) {
      if (replaced->value.empty()) continue;
      const std::string list = list_of_today(keys, replaced->name, replaced->value);
      const std::string option = replaced->name + "=" + (list.empty() ? replaced->value : list);
      const auto place = place_of(replaced->name);
      place == today.end() ? today.push_back(option) : void(*place = option);
    } else {
      const std::string list = list_of_today(keys, name, value);
      today.push_back(list.empty() ? part : name + "=" + list);
    }
  }
  return today == parts ? entry : joined(today, ",");
}

void set_option(Section& options, const std::string& option, const std::string& place) {
  const std::size_t equals = option.find('=');
  if (equals == std::string::npos) throw ConfigError(place + ": '" + option + "' does not have the form key=value");
  const std::string key = trimmed(option.substr(0, equals));
  const bool is_known = options.values().contains(key);
  if (is_known && !options.is_default(key)) throw ConfigError(place + ": " + key + " is given twice");
  options.set(key, trimmed(option.substr(equals + 1)), place);
}

}  // namespace lockstep
