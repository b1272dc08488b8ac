// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/parameter_names.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <regex>

#include "core/text/text.hpp"

namespace lockstep {

namespace {

constexpr std::string_view kPattern = "re:";

std::regex pattern_in(const std::string& from) { return std::regex(from.substr(kPattern.size())); }

}  // namespace

bool matches_name(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() != '*') {
    return !name.empty() && name.front() == pattern.front() && matches_name(pattern.substr(1), name.substr(1));
  }
  for (std::size_t taken = 0;; ++taken) {
    if (matches_name(pattern.substr(1), name.substr(taken))) return true;
    if (taken == name.size() || name[taken] == '.') return false;
  }
}

bool covers_name(std::string_view pattern, std::string_view name) {
  for (std::size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1)) {
    if (matches_name(pattern, name.substr(0, dot))) return true;
  }
  return matches_name(pattern, name);
}

bool cover_name(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [name](const std::string& pattern) { return covers_name(pattern, name); });
}

std::vector<std::string> name_patterns(const std::string& text) { return words_in(text); }

Renames parse_renames(const std::vector<std::string>& texts, const std::string& place) {
  Renames renames;
  for (const std::string& text : texts) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || text.substr(0, equals) == kPattern) {
      throw ConfigError(place + ": '" + text + "' does not have the form FROM=TO");
    }
    renames.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    try {
      if (text.starts_with(kPattern)) pattern_in(renames.back().first);
    } catch (const std::regex_error& error) {
      throw ConfigError(place + ": '" + text + "' is not a regular expression: " + error.what());
    }
  }
  return renames;
}

std::string new_name(const std::string& name, const Renames& renames) {
  std::string result = name;
  for (const auto& [from, target] : renames) {
    if (from.starts_with(kPattern)) {
      result = std::regex_replace(result, pattern_in(from), target);
    } else if (result.starts_with(from)) {
      result = target + result.substr(from.size());
    }
  }
  return result;
}

}  // namespace lockstep
