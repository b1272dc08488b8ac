// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"

namespace lockstep {

namespace {

std::string interval(const KeySpec& spec) {
  const bool has_min = std::isfinite(spec.min);
  const bool has_max = std::isfinite(spec.max);
  const std::string low = number_text(spec.min);
  if (has_min && has_max)
    return " in " + std::string(spec.min_is_exclusive ? "(" : "[") + low + ", " + number_text(spec.max) + "]";
  if (has_min) return (spec.min_is_exclusive ? " > " : " >= ") + low;
  if (has_max) return " <= " + number_text(spec.max);
  return "";
}

bool is_in_range(const KeySpec& spec, double number) {
  return (spec.min_is_exclusive ? number > spec.min : number >= spec.min) && number <= spec.max;
}

/// Whether a number was read and is in range.
template <class T>
bool is_in_range(const KeySpec& spec, const std::optional<T>& number) {
  return number && is_in_range(spec, static_cast<double>(*number));
}

template <class T>
bool is_in_range(const KeySpec& spec, const std::optional<std::vector<T>>& numbers) {
  return numbers && std::all_of(numbers->begin(), numbers->end(),
                                [&spec](T number) { return is_in_range(spec, static_cast<double>(number)); });
}

/// The word for the default of a choice.
const std::string kAuto = "auto";

std::string last_name(const std::string& full_name) { return full_name.substr(full_name.find('.') + 1); }

/// The default of the first selector's choice, and the selector with it; null if the choice does not read the key.
struct ChosenDefault {
  const std::string* text = nullptr;
  std::string choice = {};  ///< "optim.name=adamw"
};

ChosenDefault default_of_choice(const KeySpec& spec, const std::map<std::string, KeyValue>& values) {
  if (spec.readers.selectors.empty()) return {};
  const auto selector = values.find(last_name(spec.readers.selectors.front()));
  if (selector == values.end()) return {};
  const std::string& choice = selector->second.texts.front();
  const std::string name = spec.readers.selectors.front() + "=" + choice;
  const auto found = spec.readers.defaults.find(choice);
  if (found != spec.readers.defaults.end()) return {&found->second, name};
  return spec.readers.are_all ? ChosenDefault{&spec.readers.otherwise, name} : ChosenDefault{};
}

bool is_acceptable(const KeySpec& spec, const std::string& text) {
  if (text == kAuto && spec.default_value == kAuto) return true;
  switch (spec.type) {
    case KeyType::boolean:
      return parse_boolean(text).has_value();
    case KeyType::integer:
      return is_in_range(spec, parse_integer(text));
    case KeyType::real:
      return is_in_range(spec, parse_real(text));
    case KeyType::integers:
      return is_in_range(spec, parse_list(text, parse_integer));
    case KeyType::reals:
      return is_in_range(spec, parse_list(text, parse_real));
    case KeyType::choice:
      return std::find(spec.choices.begin(), spec.choices.end(), text) != spec.choices.end();
    case KeyType::words:
      return text.find('/') == std::string::npos;
    case KeyType::text:
    case KeyType::texts:
      return true;
  }
  return false;
}

/// Insertions, deletions, replacements and swaps of neighbors that turn one word into the other.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) table[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) table[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = table[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      table[i][j] = std::min({table[i - 1][j] + 1, table[i][j - 1] + 1, replaced});
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) table[i][j] = std::min(table[i][j], table[i - 2][j - 2] + 1);
    }
  }
  return table[a.size()][b.size()];
}

}  // namespace

std::string range_of(const KeySpec& spec) {
  switch (spec.type) {
    case KeyType::boolean:
      return "true or false";
    case KeyType::integer:
      return "an integer" + interval(spec);
    case KeyType::real:
      return "a number" + interval(spec);
    case KeyType::integers:
      return "integers" + interval(spec) + ", separated by commas";
    case KeyType::reals:
      return "numbers" + interval(spec) + ", separated by commas";
    case KeyType::words:
      return "words, separated by commas";
    case KeyType::choice:
      return "one of: " + joined(spec.choices);
    case KeyType::text:
      return "text";
    case KeyType::texts:
      return "text; may be repeated";
  }
  return "";
}

std::string with_commas(const KeySpec& spec, std::string list) {
  const bool is_list = spec.type == KeyType::integers || spec.type == KeyType::reals || spec.type == KeyType::words;
  if (!is_list || list.find('/') == std::string::npos) return "";
  std::replace(list.begin(), list.end(), '/', ',');
  return is_acceptable(spec, list) ? list : "";
}

std::string fault_in(const KeySpec& spec, const std::string& text) {
  if (is_acceptable(spec, text)) return "";
  std::string fault = "'" + text + "' is not " + range_of(spec);
  if (spec.type == KeyType::choice) {
    const std::string near = nearest_name(text, spec.choices);
    if (!near.empty()) fault += "; did you mean '" + near + "'?";
  }
  const std::string list = with_commas(spec, text);
  return list.empty() ? fault : fault + "; write " + list;
}

std::string nearest_name(const std::string& word, const std::vector<std::string>& names) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& name : names) {
    const std::size_t distance = edit_distance(word, name);
    if (distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

Section Section::with_defaults(const std::string& name, const KeySpecs& specs) {
  Section section(name);
  for (const KeySpec& spec : specs) {
    if (spec.name.substr(0, spec.name.find('.')) == name) section.declare(spec);
  }
  return section;
}

void Section::declare(const KeySpec& spec) {
  const std::string key = last_name(spec.name);  // a name without a dot is its own key
  std::vector<std::string> texts;
  if (spec.type != KeyType::texts || !spec.default_value.empty()) texts.push_back(spec.default_value);
  values_.insert_or_assign(key, KeyValue{spec, std::move(texts), "default"});
}

void Section::set(const std::string& key, const std::string& text, const std::string& origin) {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    std::vector<std::string> names;
    for (const auto& [name, value] : values_) names.push_back(full_name(name));
    const std::string near = nearest_name(full_name(key), names);
    throw ConfigError(origin + ": key '" + full_name(key) + "' is unknown" +
                      (near.empty() ? "" : "; did you mean '" + near + "'?"));
  }
  KeyValue& value = found->second;
  const std::string fault = fault_in(value.spec, text);
  if (!fault.empty()) throw ConfigError(origin + ": " + full_name(key) + ": " + fault);
  const bool is_one_more = value.spec.type == KeyType::texts && value.origin == origin;
  if (!is_one_more) value.texts.clear();
  value.texts.push_back(text);
  value.origin = origin;
}

bool Section::boolean(const std::string& key) const { return *parse_boolean(text_at(key, KeyType::boolean)); }

std::int64_t Section::integer(const std::string& key) const { return *parse_integer(text_at(key, KeyType::integer)); }

double Section::real(const std::string& key) const { return *parse_real(text_at(key, KeyType::real)); }

const std::string& Section::text(const std::string& key) const { return text_at(key, KeyType::text); }

std::vector<std::int64_t> Section::integers(const std::string& key) const {
  return *parse_list(text_at(key, KeyType::integers), parse_integer);
}

std::vector<double> Section::reals(const std::string& key) const {
  return *parse_list(text_at(key, KeyType::reals), parse_real);
}

const std::vector<std::string>& Section::texts(const std::string& key) const { return at(key, KeyType::texts).texts; }

const std::string& Section::origin(const std::string& key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) throw std::logic_error("key " + full_name(key) + " was never declared");
  return found->second.origin;
}

KeyValue Section::effective(const std::string& key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) throw std::logic_error("key " + full_name(key) + " was never declared");
  KeyValue value = found->second;
  if (value.texts != std::vector<std::string>{kAuto}) return value;
  const auto [text, choice] = default_of_choice(value.spec, values_);
  if (text == nullptr || *text == kAuto) return value;
  value.texts = {*text};
  if (value.origin == "default") value.origin = "default of " + choice;
  return value;
}

std::string Section::full_name(const std::string& key) const {
  return name_.empty() || name_ == key ? key : name_ + "." + key;
}

std::string Section::cite(const std::string& key) const { return full_name(key) + " (" + origin(key) + ")"; }

const KeyValue& Section::at(const std::string& key, KeyType type) const {
  const auto found = values_.find(key);
  if (found == values_.end()) throw std::logic_error("key " + full_name(key) + " was never declared");
  const KeyType declared = found->second.spec.type;
  const bool is_text = type == KeyType::text && (declared == KeyType::choice || declared == KeyType::words);
  if (declared != type && !is_text) throw std::logic_error("key " + full_name(key) + " is read as another type");
  return found->second;
}

const std::string& Section::text_at(const std::string& key, KeyType type) const {
  const KeyValue& value = at(key, type);
  const std::string& text = value.texts.front();
  if (text != kAuto) return text;
  const auto [of_choice, choice] = default_of_choice(value.spec, values_);
  if (of_choice != nullptr) return *of_choice;
  const auto& defaults = value.spec.readers.defaults;  // code that reads the key whatever is chosen needs some value
  return defaults.empty() ? text : defaults.begin()->second;
}

}  // namespace lockstep

namespace lockstep::keys {

KeySpec boolean(const std::string& name, const std::string& default_value, const std::string& help) {
  return {.name = name, .type = KeyType::boolean, .default_value = default_value, .help = help};
}

KeySpec integer(const std::string& name, const std::string& default_value, const std::string& help, double min,
                double max) {
  return {.name = name, .type = KeyType::integer, .default_value = default_value, .help = help, .min = min, .max = max};
}

KeySpec real(const std::string& name, const std::string& default_value, const std::string& help, double min,
             double max) {
  return {.name = name, .type = KeyType::real, .default_value = default_value, .help = help, .min = min, .max = max};
}

KeySpec real_above(const std::string& name, double min_exclusive, double max, const std::string& default_value,
                   const std::string& help) {
  KeySpec key = real(name, default_value, help, min_exclusive, max);
  key.min_is_exclusive = true;
  return key;
}

KeySpec text(const std::string& name, const std::string& default_value, const std::string& help) {
  return {.name = name, .type = KeyType::text, .default_value = default_value, .help = help};
}

KeySpec choice(const std::string& name, const std::string& default_value, const std::string& help,
               const std::vector<std::string>& choices) {
  return {.name = name, .type = KeyType::choice, .default_value = default_value, .help = help, .choices = choices};
}

KeySpec integers(const std::string& name, const std::string& default_value, const std::string& help, double min,
                 double max) {
  return {
      .name = name, .type = KeyType::integers, .default_value = default_value, .help = help, .min = min, .max = max};
}

KeySpec reals(const std::string& name, const std::string& default_value, const std::string& help, double min,
              double max) {
  return {.name = name, .type = KeyType::reals, .default_value = default_value, .help = help, .min = min, .max = max};
}

KeySpec words(const std::string& name, const std::string& default_value, const std::string& help) {
  return {.name = name, .type = KeyType::words, .default_value = default_value, .help = help};
}

KeySpec texts(const std::string& name, const std::string& default_value, const std::string& help) {
  return {.name = name, .type = KeyType::texts, .default_value = default_value, .help = help};
}

KeySpec renamed(KeySpec key, const std::string& old_name) {
  key.old_names.push_back(old_name);
  return key;
}

KeySpec read_by(KeySpec key, const std::string& selector, const std::vector<std::string>& choices) {
  key.readers.selectors = {selector};
  for (const std::string& choice : choices) key.readers.defaults.emplace(choice, key.default_value);
  return key;
}

KeySpec not_read_by(KeySpec key, const std::string& selector, const std::vector<std::string>& choices) {
  key.readers = {.selectors = {selector}, .are_all = true, .otherwise = key.default_value, .except = choices};
  return key;
}

KeySpec expert(KeySpec key) {
  key.is_expert = true;
  return key;
}

KeySpecs titled(const std::string& section_title, KeySpecs keys) {
  for (KeySpec& key : keys) key.section_title = section_title;
  return keys;
}

KeySpec replacing(KeySpec key, FormerSetting former) {
  key.replaces.push_back(std::move(former));
  return key;
}

}  // namespace lockstep::keys
