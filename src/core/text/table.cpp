// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/table.hpp"

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

/// The options of the form that an entry names, then those of the other forms.
KeySpecs options_for(const std::string& name, const KeySpecs& forms, const KeySpecs& more) {
  KeySpecs options;
  const auto add = [&options](const KeySpecs& keys) { options.insert(options.end(), keys.begin(), keys.end()); };
  for (const KeySpec& form : forms) {
    if (form.name == name) add(form.parts);
  }
  for (const KeySpec& form : forms) add(form.parts);
  add(more);
  return options;
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

std::string todays_option(const std::string& option, const KeySpecs& keys) {
  const std::size_t equals = option.find('=');
  if (equals == std::string::npos) return option;
  const std::string name = trimmed(option.substr(0, equals));
  const std::string value = trimmed(option.substr(equals + 1));
  for (const KeySpec& key : keys) {
    for (const FormerSetting& former : key.replaces) {
      const std::string today = option_name(former.key) == name ? former.translate(value, "") : "";
      if (!today.empty()) return option_name(key.name) + "=" + today;
    }
    const bool is_renamed = std::any_of(key.old_names.begin(), key.old_names.end(),
                                        [&name](const std::string& old_name) { return option_name(old_name) == name; });
    if (!is_renamed && option_name(key.name) != name) continue;
    const std::string list = with_commas(key, value);
    if (list.empty() && !is_renamed) return option;
    return option_name(key.name) + "=" + (list.empty() ? value : list);
  }
  return option;
}

std::string todays_entry(const std::string& entry, const KeySpecs& forms, const KeySpecs& more) {
  const std::vector<std::string> parts = entry_parts(entry);
  std::vector<std::string> today = parts;
  for (const KeySpec& form : forms) {
    if (has(form.old_names, parts.front())) today.front() = form.name;
  }
  const KeySpecs options = options_for(today.front(), forms, more);
  for (std::string& part : today) {
    const std::size_t value = part.find('=') + 1;  // 0 = the part is no option
    if (value > 0 && is_in_parentheses(part.substr(value))) {
      part = part.substr(0, value) + todays_entries(part.substr(value), forms, more);
    } else {
      part = todays_option(part, options);
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
