// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/duration.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iomanip>
#include <vector>

#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"
#include "core/text/text_stream.hpp"

namespace lockstep {

namespace {

constexpr double kMinute = 60;
constexpr double kHour = 60 * kMinute;
constexpr double kDay = 24 * kHour;
constexpr std::size_t kMaxDigits = 9;

std::optional<double> count_of(const std::string& digits) {
  const bool are_digits = std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (digits.empty() || digits.size() > kMaxDigits || !are_digits) return std::nullopt;
  return static_cast<double>(std::stoll(digits));
}

/// The parts between colons; of all but the first, two digits up to 59.
std::optional<std::vector<double>> clock_parts(const std::string& text) {
  std::vector<double> parts;
  for (const std::string& digits : split(text, ':')) {
    const auto part = count_of(digits);
    if (!part || (!parts.empty() && (digits.size() != 2 || *part >= kMinute))) return std::nullopt;
    parts.push_back(*part);
  }
  return parts;
}

}  // namespace

std::optional<double> parse_duration(const std::string& text) {
  const std::size_t dash = text.find('-');
  if (dash == std::string::npos && text.find(':') == std::string::npos) {
    const auto seconds = parse_real(text);
    return seconds && *seconds >= 0 && *seconds < 1e9 ? seconds : std::nullopt;
  }
  const bool has_days = dash != std::string::npos;
  const auto days = has_days ? count_of(text.substr(0, dash)) : 0;
  const auto parts = clock_parts(has_days ? text.substr(dash + 1) : text);
  if (!days || !parts || parts->size() > 3 || parts->size() < (has_days ? 3U : 2U)) return std::nullopt;
  double seconds = 0;
  for (const double part : *parts) seconds = seconds * kMinute + part;
  return *days * kDay + seconds;
}

std::string clock_text(double seconds) {
  constexpr double kLongest = 1e6 * kDay;
  const auto whole = static_cast<long long>(std::fmin(std::fmax(seconds, 0.0), kLongest));
  const long long days = whole / 86400;
  std::array<char, 64> clock{};
  std::snprintf(clock.data(), clock.size(), "%lld:%02lld:%02lld", whole / 3600 % 24, whole / 60 % 60, whole % 60);
  if (days == 0) return clock.data();
  return std::to_string(days) + (days == 1 ? " day, " : " days, ") + clock.data();
}

std::string seconds_text(double seconds) {
  TextWriter text;
  text << std::fixed << std::setprecision(1) << seconds << " s";
  return text.str();
}

}  // namespace lockstep
