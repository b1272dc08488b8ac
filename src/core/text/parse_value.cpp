// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/parse_value.hpp"

#include <charconv>
#include <cmath>

namespace lockstep {

namespace {

template <class T>
std::optional<T> parse_number(const std::string& text) {
  T value{};
  const char* begin = text.data();
  const char* end = begin + text.size();
  if (begin != end && *begin == '+') ++begin;
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc{} || stop != end || begin == end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<bool> parse_boolean(const std::string& text) {
  if (text == "true" || text == "yes" || text == "on" || text == "1") return true;
  if (text == "false" || text == "no" || text == "off" || text == "0") return false;
  return std::nullopt;
}

std::optional<std::int64_t> parse_integer(const std::string& text) { return parse_number<std::int64_t>(text); }

std::optional<double> parse_any_real(const std::string& text) { return parse_number<double>(text); }

std::optional<double> parse_real(const std::string& text) {
  const auto value = parse_any_real(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

}  // namespace lockstep
