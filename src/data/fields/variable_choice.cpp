// SPDX-License-Identifier: BSD-3-Clause
#include "data/fields/variable_choice.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <optional>

#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"

namespace lockstep::data {

namespace {

/// The part in brackets of an entry: channels, and positions of other axes.
void read_brackets(const std::string& inside, VariableChoice& choice, const std::string& cited) {
  for (const std::string& word : split_list(inside, ',')) {
    const std::size_t sign = word.find_first_of("=#");
    if (word.empty() || sign == 0 || sign + 1 == word.size()) {
      throw ConfigError(cited + ": '" + choice.path + "[" + inside +
                        "]' has an empty part; write channels, as in fields[z500,t850], or a position of an axis, as "
                        "in z[level=500] or z[level#1]");
    }
    if (sign == std::string::npos) {
      choice.channels.push_back(word);
    } else {
      choice.fixed.push_back(
          {.axis = word.substr(0, sign), .is_index = word[sign] == '#', .value = word.substr(sign + 1)});
    }
  }
}

struct AxisText {
  std::string axis;
  std::string value;
};

/// Reads "x:0-64,y:8-40" into pairs.
std::vector<AxisText> parse_axis_texts(const std::string& text, const std::string& cited, const std::string& example) {
  std::vector<AxisText> parts;
  for (const std::string& word : words_in(text)) {
    const std::size_t colon = word.find(':');
    if (colon == 0 || colon == std::string::npos || colon + 1 == word.size()) {
      throw ConfigError(cited + ": '" + word + "' has not the form AXIS:VALUE; an example is " + example);
    }
    parts.push_back({.axis = word.substr(0, colon), .value = word.substr(colon + 1)});
    if (std::ranges::count(parts, parts.back().axis, &AxisText::axis) > 1) {
      throw ConfigError(cited + ": the axis '" + parts.back().axis + "' is given twice");
    }
  }
  return parts;
}

struct Range {
  std::int64_t begin;
  std::int64_t end;
};

/// Reads "8-40"; without a minus sign, both are the same number.
std::optional<Range> parse_range(const std::string& text) {
  const std::size_t minus = text.find('-');
  const auto begin = parse_integer(text.substr(0, minus));
  const auto end = minus == std::string::npos ? begin : parse_integer(text.substr(minus + 1));
  if (!begin || !end || *begin < 0 || *end < *begin) return std::nullopt;
  return Range{*begin, *end};
}

}  // namespace

std::string VariableChoice::text() const {
  std::vector<std::string> inside = channels;
  for (const AxisChoice& each : fixed) inside.push_back(each.axis + (each.is_index ? "#" : "=") + each.value);
  return inside.empty() ? path : path + "[" + joined(inside, ",") + "]";
}

std::vector<VariableChoice> parse_variables(const std::string& text, const std::string& cited) {
  std::vector<VariableChoice> choices;
  for (const std::string& entry : words_in(text)) {
    const std::size_t open = entry.find('[');
    VariableChoice choice{.path = trimmed(entry.substr(0, open))};
    while (choice.path.starts_with('/')) choice.path.erase(0, 1);
    if (open != std::string::npos) {
      if (entry.back() != ']' || entry.find('[', open + 1) != std::string::npos) {
        throw ConfigError(cited + ": '" + entry + "' has no ']' at its end; an example is fields[z500,t850]");
      }
      read_brackets(entry.substr(open + 1, entry.size() - open - 2), choice, cited);
    }
    choices.push_back(std::move(choice));
  }
  return choices;
}

const std::string& LayoutChoice::of(const std::string& variable) const {
  const auto own = by_variable.find(variable);
  return own == by_variable.end() ? common : own->second;
}

LayoutChoice parse_layouts(const std::string& text, const std::string& cited) {
  LayoutChoice choice;
  for (const std::string& word : words_in(text)) {
    const std::size_t colon = word.rfind(':');
    const std::string letters = word.substr(colon == std::string::npos ? 0 : colon + 1);
    const bool are_letters = std::ranges::all_of(letters, [](char c) { return c >= 'a' && c <= 'z'; });
    if (letters.empty() || !are_letters) {
      throw ConfigError(
          cited + ": '" + word +
          "' is no layout; write a small letter for each axis of the array, as in ntxy (n = trajectory, t "
          "= time, c = channel, others = space), or VARIABLE:ntxy");
    }
    if (colon == std::string::npos) {
      if (!choice.common.empty()) {
        throw ConfigError(cited + ": there are two layouts without a variable, " + choice.common + " and " + letters);
      }
      choice.common = letters;
    } else {
      choice.by_variable[word.substr(0, colon)] = letters;
    }
  }
  return choice;
}

std::map<std::string, SpacePart> parse_space(const std::string& crop, const std::string& crop_cited,
                                             const std::string& subsample, const std::string& subsample_cited) {
  std::map<std::string, SpacePart> parts;
  for (const auto& [axis, value] : parse_axis_texts(crop, crop_cited, "x:0-64,y:8-40")) {
    const auto range = parse_range(value);
    if (!range || range->begin == range->end || value.find('-') == std::string::npos) {
      throw ConfigError(crop_cited + ": '" + value + "' is no range of the axis '" + axis +
                        "'; write FIRST-END, where END is not included, as in x:0-64");
    }
    parts[axis] = {.begin = range->begin, .end = range->end, .cited = crop_cited};
  }
  for (const auto& [axis, value] : parse_axis_texts(subsample, subsample_cited, "x:2,y:2")) {
    const auto step = parse_integer(value);
    if (!step || *step < 1) {
      throw ConfigError(subsample_cited + ": '" + value + "' is no integer of at least 1; an example is x:2,y:2");
    }
    SpacePart& part = parts[axis];
    part.step = *step;
    if (part.cited.empty()) part.cited = subsample_cited;
  }
  return parts;
}

std::vector<std::int64_t> parse_ranges(const std::string& text, const std::string& cited) {
  constexpr std::int64_t kMost = 1 << 24;
  std::vector<std::int64_t> numbers;
  for (const std::string& word : words_in(text)) {
    const auto range = parse_range(word);
    if (!range || range->end - range->begin >= kMost) {
      throw ConfigError(cited + ": '" + word + "' is neither a number nor a range; an example is 0-89,95");
    }
    for (std::int64_t i = range->begin; i <= range->end; ++i) numbers.push_back(i);
  }
  std::ranges::sort(numbers);
  const auto repeated = std::ranges::unique(numbers);
  numbers.erase(repeated.begin(), repeated.end());
  return numbers;
}

}  // namespace lockstep::data
