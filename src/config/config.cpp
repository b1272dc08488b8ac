// SPDX-License-Identifier: BSD-3-Clause
#include "config/config.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <stdexcept>

#include "core/system/home_path.hpp"
#include "core/text/table.hpp"
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
  const std::vector<std::string> names = names_of(specs);
  const std::string near = nearest_name(name, names);
  if (!near.empty()) return near;
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

void check_default(const KeySpec& spec) {
  const bool is_empty_list = spec.type == KeyType::texts && spec.default_value.empty();
  const std::string fault = is_empty_list ? "" : fault_in(spec, spec.default_value);
  if (!fault.empty()) throw std::logic_error("default of key " + spec.name + ": " + fault);
}

/// The choices that a selector makes: "adamw" of "adamw" and of "generator,name=adamw,lr=1e-4".
std::vector<std::string> choices_of(const KeyValue& selector) {
  std::vector<std::string> choices;
  for (const std::string& text : selector.texts) {
    const std::vector<std::string> words = split_list(text, ',');
    const auto name =
        std::find_if(words.begin(), words.end(), [](const std::string& word) { return word.starts_with("name="); });
    choices.push_back(name == words.end() ? words.front() : name->substr(5));
  }
  return choices;
}

/// Whether a choice of the selector reads the key.
bool reads(const KeyReaders& readers, const std::string& choice) {
  if (!readers.are_all) return readers.defaults.contains(choice);
  return std::find(readers.except.begin(), readers.except.end(), choice) == readers.except.end();
}

/// "optim.name=larc or lars or sgd": the choices that read the key, a few by name; "" if all choices do, or all but a
/// few.
std::string text_of_readers(const KeyReaders& readers) {
  constexpr std::size_t kMostNames = 6;
  if (readers.selectors.empty() || readers.are_all) return "";
  std::vector<std::string> names;
  for (const auto& [choice, text] : readers.defaults) names.push_back(choice);
  const std::size_t others = names.size() - std::min(names.size(), kMostNames);
  names.resize(names.size() - others);
  if (others > 0) return readers.selectors.front() + "=" + joined(names) + " and " + std::to_string(others) + " others";
  const std::string last = names.back();
  names.pop_back();
  return readers.selectors.front() + "=" + joined(names) + (names.empty() ? "" : " or ") + last;
}

using Json = nlohmann::ordered_json;

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

/// An origin is a path at times, and a comment ends with its line.
std::string on_one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = '?';
  }
  return text;
}

/// The value as a file must have it, so that it is read back.
std::string ini_value(const std::string& text) {
  const bool has_blanks = !text.empty() && (std::isspace(static_cast<unsigned char>(text.front())) != 0 ||
                                            std::isspace(static_cast<unsigned char>(text.back())) != 0);
  const bool has_comment =
      text.starts_with('#') || text.find(" #") != std::string::npos || text.find("\t#") != std::string::npos;
  if (!has_blanks && !has_comment && !text.starts_with('"')) return text;
  return in_double_quotes(text);
}

std::string ini_lines(const std::string& key, const KeyValue& value) {
  if (value.texts.empty()) return "# " + key + " is not set\n";
  std::string lines;
  for (const std::string& text : value.texts) {
    lines += padded(key + " =" + (text.empty() ? "" : " " + ini_value(text)), 40) + "  # " + on_one_line(value.origin) +
             "\n";
  }
  return lines;
}

Json typed(const Section& section, const std::string& key, KeyType type) {
  switch (type) {
    case KeyType::boolean:
      return section.boolean(key);
    case KeyType::integer:
      return section.integer(key);
    case KeyType::real:
      return section.real(key);
    case KeyType::text:
    case KeyType::words:
    case KeyType::choice:
      return section.text(key);
    case KeyType::integers:
      return section.integers(key);
    case KeyType::reals:
      return section.reals(key);
    case KeyType::texts:
      return section.texts(key);
  }
  return nullptr;
}

using Row = std::array<std::string, 3>;  // key, value, origin

std::vector<Row> rows_of(const Config& config) {
  std::vector<Row> rows = {{"key", "value", "from"}};
  for (const KeySpec& spec : config.specs()) {
    const KeyValue value = config.effective(spec.name);
    if (value.texts.empty()) rows.push_back({spec.name, "(not set)", value.origin});
    for (const std::string& text : value.texts)
      rows.push_back({spec.name, text.empty() ? "(empty)" : text, value.origin});
  }
  return rows;
}

/// The width that fits a column, where a few long entries may stick out of it.
std::size_t width_of(const std::vector<Row>& rows, std::size_t column) {
  constexpr std::size_t kLongest = 36;
  std::size_t width = 0;
  for (const Row& row : rows) {
    if (row[column].size() <= kLongest) width = std::max(width, row[column].size());
  }
  return width;
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

KeyValue Config::effective(const std::string& name) const { return section(section_of(name)).effective(key_of(name)); }

void Config::set(const std::string& name, const std::string& text, const std::string& origin, Author author) {
  refuse_former(name, text, origin);
  Section& section = section_holding(name, origin);
  const KeyType type = section.values().at(key_of(name)).spec.type;
  const bool is_text = type == KeyType::text || type == KeyType::texts;
  std::string value = is_text ? text : trimmed(text);
  // Earlier versions took a '$' inside a path as it is, so that a stored path may contain it.
  const bool may_have_dollar = author == Author::program && text.find('$') != std::string::npos;
  if (is_text && !may_have_dollar) value = with_home(text, origin + ": " + name + ": ");
  if (is_unwritable(value)) throw ConfigError(origin + ": " + name + ": a value must not contain control characters");
  section.set(key_of(name), value, origin);
  if (author == Author::user) set_by_user_.insert(name);
}

Section& Config::section_holding(const std::string& name, const std::string& origin) {
  const auto found = sections_.find(section_of(name));
  if (found != sections_.end() && found->second.has(key_of(name))) return found->second;
  const std::string start = origin + ": key '" + name + "' is unknown; ";
  const auto with_options = std::find_if(specs_.begin(), specs_.end(), [&](const KeySpec& spec) {
    return spec.type == KeyType::texts && !spec.parts.empty() && name.starts_with(spec.name + ".");
  });
  if (with_options != specs_.end()) {
    throw ConfigError(start + "an option is a part of a value, behind a name: " + with_options->name +
                      "=NAME,option=value");
  }
  const std::string likely = likely_name(name, specs_);
  if (likely.empty()) throw ConfigError(start + "--help lists the sections and --help=SECTION their keys");
  const std::string readers = text_of_readers(value(likely).spec.readers);
  throw ConfigError(start + "did you mean '" + likely + "'" + (readers.empty() ? "" : " of " + readers) + "?");
}

void Config::require_read() const {
  for (const std::string& name : set_by_user_) {
    const KeyValue& set = value(name);
    const KeyReaders& readers = set.spec.readers;
    const auto is_read = [&](const std::string& selector) {
      const std::vector<std::string> choices = choices_of(value(selector));
      return std::any_of(choices.begin(), choices.end(),
                         [&](const std::string& choice) { return reads(readers, choice); });
    };
    if (readers.selectors.empty() || std::any_of(readers.selectors.begin(), readers.selectors.end(), is_read)) continue;
    const std::string& selector = readers.selectors.front();
    const std::string chosen = joined(value(selector).texts);
    const std::string others = text_of_readers(readers);
    throw ConfigError(set.origin + ": " + name + " is not read " +
                      (chosen.empty() ? "without " + selector : "with " + selector + "=" + chosen) +
                      (others.empty() ? "" : ", only with " + others) + "; remove it, or " +
                      (chosen.empty() ? "set " : "change ") + selector);
  }
}

std::string Config::to_ini() const {
  std::string text = kIniHeader + std::string("\n");
  const auto append = [this, &text](const std::string& section) {
    for (const KeySpec& spec : specs_) {
      if (section_of(spec.name) == section) text += ini_lines(key_of(spec.name), effective(spec.name));
    }
  };
  append("");
  for (const std::string& section : section_names(specs_)) {
    text += "\n[" + section + "]\n";
    append(section);
  }
  return text;
}

std::string Config::to_json() const {
  Json all = Json::object();
  for (const KeySpec& spec : specs_) {
    const Section& in = section(section_of(spec.name));
    all[spec.name] = {{"value", typed(in, key_of(spec.name), spec.type)}, {"origin", effective(spec.name).origin}};
  }
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string Config::explain() const {
  const std::vector<Row> rows = rows_of(*this);
  const std::size_t key_width = width_of(rows, 0);
  const std::size_t value_width = width_of(rows, 1);
  std::string table;
  for (const auto& [key, value, origin] : rows) {
    table += padded(key, key_width) + "  " + padded(value, value_width) + "  " + origin + "\n";
  }
  return table;
}

}  // namespace lockstep::config
