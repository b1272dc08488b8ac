// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <stdexcept>

#include "core/text/parse_value.hpp"

namespace lockstep {

Section Section::with_defaults(const std::string& name, const KeySpecs& specs) {
  Section section(name);
  for (const KeySpec& spec : specs) {
    if (spec.name.substr(0, spec.name.find('.')) == name) section.declare(spec);
  }
  return section;
}

void Section::declare(const KeySpec& spec) {
  const std::string key = spec.name.substr(spec.name.find('.') + 1);  // a name without a dot is its own key
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

bool Section::boolean(const std::string& key) const { return *parse_boolean(at(key, KeyType::boolean).texts.front()); }

std::int64_t Section::integer(const std::string& key) const {
  return *parse_integer(at(key, KeyType::integer).texts.front());
}

double Section::real(const std::string& key) const { return *parse_real(at(key, KeyType::real).texts.front()); }

const std::string& Section::text(const std::string& key) const { return at(key, KeyType::text).texts.front(); }

std::vector<std::int64_t> Section::integers(const std::string& key) const {
  return *parse_list(at(key, KeyType::integers).texts.front(), parse_integer);
}

std::vector<double> Section::reals(const std::string& key) const {
  return *parse_list(at(key, KeyType::reals).texts.front(), parse_real);
}

const std::vector<std::string>& Section::texts(const std::string& key) const { return at(key, KeyType::texts).texts; }

const std::string& Section::origin(const std::string& key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) throw std::logic_error("key " + full_name(key) + " was never declared");
  return found->second.origin;
}

std::string Section::full_name(const std::string& key) const {
  return name_.empty() || name_ == key ? key : name_ + "." + key;
}

std::string Section::cite(const std::string& key) const { return full_name(key) + " (" + origin(key) + ")"; }

const KeyValue& Section::at(const std::string& key, KeyType type) const {
  const auto found = values_.find(key);
  if (found == values_.end()) throw std::logic_error("key " + full_name(key) + " was never declared");
  const KeyType declared = found->second.spec.type;
  const bool is_word = type == KeyType::text && declared == KeyType::choice;
  if (declared != type && !is_word) throw std::logic_error("key " + full_name(key) + " is read as another type");
  return found->second;
}

}  // namespace lockstep
