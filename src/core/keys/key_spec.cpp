// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
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

template <class T>
bool is_in_range(const KeySpec& spec, const std::vector<T>& values) {
  return std::all_of(values.begin(), values.end(), [&spec](T value) {
    const auto number = static_cast<double>(value);
    return (spec.min_is_exclusive ? number > spec.min : number >= spec.min) && number <= spec.max;
  });
}

bool is_acceptable(const KeySpec& spec, const std::string& text) {
  switch (spec.type) {
    case KeyType::boolean:
      return parse_boolean(text).has_value();
    case KeyType::integer: {
      const auto value = parse_integer(text);
      return value && is_in_range<std::int64_t>(spec, {*value});
    }
    case KeyType::real: {
      const auto value = parse_real(text);
      return value && is_in_range<double>(spec, {*value});
    }
    case KeyType::integers: {
      const auto values = parse_list(text, parse_integer);
      return values && is_in_range(spec, *values);
    }
    case KeyType::reals: {
      const auto values = parse_list(text, parse_real);
      return values && is_in_range(spec, *values);
    }
    case KeyType::choice:
      return std::find(spec.choices.begin(), spec.choices.end(), text) != spec.choices.end();
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
    case KeyType::choice:
      return "one of: " + joined(spec.choices);
    case KeyType::text:
      return "text";
    case KeyType::texts:
      return "text; may be repeated";
  }
  return "";
}

std::string fault_in(const KeySpec& spec, const std::string& text) {
  if (is_acceptable(spec, text)) return "";
  std::string fault = "'" + text + "' is not " + range_of(spec);
  if (spec.type == KeyType::choice) {
    const std::string near = nearest_name(text, spec.choices);
    if (!near.empty()) fault += "; did you mean '" + near + "'?";
  }
  return fault;
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

}  // namespace lockstep
