// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/documents.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "core/text/text.hpp"

namespace lockstep::ckpt {

namespace {

void add(Entries& entries, const std::string& key, const std::string& value) {
  const auto [entry, is_new] = entries.emplace(key, value);
  if (!is_new) entry->second += "\n" + value;
}

std::optional<Entries> entries_of_ini(const std::string& text) {
  Entries entries;
  std::string section;
  for (const std::string& written : lines_in(text)) {
    const std::string line = trimmed(written.substr(0, written.find('#')));
    if (line.empty()) continue;
    const auto equals = line.find('=');
    if (line.front() == '[' && line.back() == ']') {
      section = line.substr(1, line.size() - 2) + ".";
    } else if (equals == std::string::npos) {
      return std::nullopt;
    } else {
      add(entries, section + trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1)));
    }
  }
  return entries;
}

std::optional<Entries> entries_of_json(const std::string& text) {
  const auto root = nlohmann::json::parse(text, nullptr, false);
  if (!root.is_object()) return std::nullopt;
  Entries entries;
  const auto flat = root.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    if (pointer.empty()) continue;        // an empty object
    std::string key = pointer.substr(1);  // "/hosts/0"
    std::replace(key.begin(), key.end(), '/', '.');
    add(entries, key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return entries;
}

}  // namespace

std::optional<Entries> entries_of(const std::string& path, const std::string& text) {
  if (path == "/meta/config_ini") return entries_of_ini(text);
  if (path == "/meta/env_json") return entries_of_json(text);
  return std::nullopt;
}

}  // namespace lockstep::ckpt
