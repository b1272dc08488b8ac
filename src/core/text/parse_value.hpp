// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/text/text.hpp"

namespace lockstep {

/// true, false, yes, no, on, off, 1, 0.
std::optional<bool> parse_boolean(const std::string& text);
/// A whole decimal number, with an optional sign and nothing around it.
std::optional<std::int64_t> parse_integer(const std::string& text);
/// A decimal number, nan or inf.
std::optional<double> parse_any_real(const std::string& text);
/// A finite decimal number.
std::optional<double> parse_real(const std::string& text);

/// Comma-separated values with optional blanks; "" is the empty list.
template <class Parse>
auto parse_list(const std::string& text, Parse parse) {
  using Item = typename decltype(parse(text))::value_type;
  std::optional<std::vector<Item>> items{std::in_place};
  if (text.find_first_not_of(' ') == std::string::npos) return items;
  for (std::string part : split(text, ',')) {
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    const std::optional<Item> item = parse(part);
    if (!item) return std::optional<std::vector<Item>>();
    items->push_back(*item);
  }
  return items;
}

}  // namespace lockstep
