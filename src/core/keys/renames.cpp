// SPDX-License-Identifier: BSD-3-Clause
#include "core/keys/renames.hpp"

#include <lockstep/core/error.hpp>

#include <regex>

namespace lockstep {

namespace {

constexpr std::string_view kPattern = "re:";

std::regex pattern_in(const std::string& from) { return std::regex(from.substr(kPattern.size())); }

}  // namespace

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
