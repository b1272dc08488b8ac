// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
  std::size_t begin = 0;
  while (items && begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::size_t first = text.find_first_not_of(' ', begin);
    const std::size_t last = end == 0 ? std::string::npos : text.find_last_not_of(' ', end - 1);
    std::optional<Item> item;
    if (first < end && last != std::string::npos && last >= first) item = parse(text.substr(first, last - first + 1));
    if (item) {
      items->push_back(*item);
    } else {
      items.reset();
    }
    begin = end + 1;
  }
  return items;
}

}  // namespace lockstep
