// SPDX-License-Identifier: BSD-3-Clause
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>

#include "config/config.hpp"

namespace lockstep::config {

namespace {

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
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
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
    const KeyValue& value = config.value(spec.name);
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

std::string Config::to_ini() const {
  std::string text = "# The value of every key; --config=FILE reads it back.\n";
  const auto append = [this, &text](const std::string& section) {
    for (const KeySpec& spec : specs_) {
      if (section_of(spec.name) == section) text += ini_lines(key_of(spec.name), value(spec.name));
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
    all[spec.name] = {{"value", typed(in, key_of(spec.name), spec.type)}, {"origin", value(spec.name).origin}};
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
