// SPDX-License-Identifier: BSD-3-Clause
#include "engine/settings/intervals.hpp"

#include <lockstep/core/error.hpp>

#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"

namespace lockstep::engine {

Intervals Intervals::parse(const std::string& text, std::int64_t min, const std::string& cite) {
  Intervals result;
  result.parts_.clear();
  for (const std::string& word : split_list(text, ',')) {
    const std::size_t colon = word.find(':');
    const bool is_first = result.parts_.empty();
    const auto from = colon == std::string::npos ? std::nullopt : parse_integer(word.substr(0, colon));
    const auto interval = parse_integer(colon == std::string::npos ? word : word.substr(colon + 1));
    if ((colon == std::string::npos) != is_first || (!is_first && !from) || !interval) {
      throw ConfigError(cite + ": '" + text + "' is neither an interval, such as 5, nor one that changes, such as " +
                        "5,11:2 (from number 11 on, every 2nd one)");
    }
    if (*interval < (is_first ? min : 1)) {
      throw ConfigError(cite + ": the interval " + std::to_string(*interval) + " is below " +
                        std::to_string(is_first ? min : 1));
    }
    const std::int64_t begin = is_first ? 0 : from.value_or(0);
    if (!is_first && begin <= result.parts_.back().first) {
      throw ConfigError(cite + ": '" + text + "': the numbers before ':' must increase from 1");
    }
    result.parts_.emplace_back(begin, *interval);
  }
  return result;
}

bool Intervals::is_due(std::int64_t number) const {
  std::int64_t interval = 0;
  for (const auto& [from, each] : parts_) {
    if (number >= from) interval = each;
  }
  return interval > 0 && number % interval == 0;
}

}  // namespace lockstep::engine
