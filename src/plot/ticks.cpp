// SPDX-License-Identifier: BSD-3-Clause
#include "plot/ticks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::plot {

namespace {

/// 1, 2 or 5 times a power of ten.
struct Step {
  int digit;
  int exponent;

  double size() const { return digit * std::pow(10.0, exponent); }
  /// A power of ten below one is no double, its reciprocal is: dividing gives 0.3, where multiplying gives
  /// 0.30000000000000004.
  double multiple(double n) const {
    return exponent < 0 ? n * digit / std::pow(10.0, -exponent) : n * digit * std::pow(10.0, exponent);
  }
};

Step nice_step(double span, int wanted) {
  const double raw = span / wanted;
  const int exponent = static_cast<int>(std::floor(std::log10(raw)));
  const double mantissa = raw / std::pow(10.0, exponent);
  if (mantissa < 1.5) return {1, exponent};
  if (mantissa < 3.5) return {2, exponent};
  if (mantissa < 7.5) return {5, exponent};
  return {1, exponent + 1};
}

/// "1e-5" for "1e-05".
std::string with_short_exponent(std::string text) {
  const std::size_t e = text.find('e');
  if (e == std::string::npos) return text;
  std::string exponent = text.substr(e + 1);
  const std::string sign = exponent[0] == '-' ? "-" : "";
  exponent.erase(0, exponent.find_first_not_of("+-0"));
  return text.substr(0, e + 1) + sign + exponent;
}

std::string general(double value) { return with_short_exponent(fmt::format("{:.6g}", value)); }

/// The fewest decimals, six at most, that represent every value exactly; -1 when six are too few.
int decimals_for(const std::vector<double>& values) {
  for (int decimals = 0; decimals <= 6; ++decimals) {
    const double scale = std::pow(10.0, decimals);
    const bool is_enough = std::all_of(values.begin(), values.end(), [scale](double value) {
      return std::abs(value * scale - std::round(value * scale)) < 1e-6;
    });
    if (is_enough) return decimals;
  }
  return -1;
}

struct Unit {
  double size;
  std::string suffix;
};

/// Thousands, millions, or the power of ten of small numbers: 10k, 1.5M, 2.5e-4.
Unit unit_for(const std::vector<double>& ticks) {
  double largest = 0.0;
  for (const double value : ticks) largest = std::max(largest, std::abs(value));
  if (largest >= 1e4 && largest < 1e6) return {1e3, "k"};
  if (largest >= 1e6 && largest < 1e9) return {1e6, "M"};
  if (largest == 0.0 || (largest >= 1e-3 && largest < 1e9)) return {1.0, ""};
  const int exponent = static_cast<int>(std::floor(std::log10(largest) + 1e-9));
  return {std::pow(10.0, exponent), fmt::format("e{}", exponent)};
}

bool is_even(const std::vector<double>& ticks) {
  if (ticks.size() < 3) return true;
  const double step = ticks[1] - ticks[0];
  return std::abs(ticks.back() - ticks[0] - step * static_cast<double>(ticks.size() - 1)) < 1e-6 * step;
}

}  // namespace

Ticks linear_ticks(double low, double high, int wanted, bool is_widened) {
  // A value that differs by less than rounding is one value.
  const double min = 1e-9 * std::max(std::abs(low), std::abs(high));
  if (high - low <= min) {
    const double room = high == 0.0 ? 1.0 : 0.5 * std::abs(high);
    low -= room;
    high += room;
  }
  const Step step = nice_step(high - low, std::max(wanted, 1));
  constexpr double kSlack = 1e-6;  // part of a step by which rounding may move an end off its mark
  const double size = step.size();
  const double first = is_widened ? std::floor(low / size + kSlack) : std::ceil(low / size - kSlack);
  const double last = is_widened ? std::ceil(high / size - kSlack) : std::floor(high / size + kSlack);
  Ticks ticks;
  for (double n = first; n <= last; n += 1) ticks.values.push_back(step.multiple(n) + 0.0);  // + 0.0 = no -0
  ticks.low = std::min(low, ticks.values.empty() ? low : ticks.values.front());
  ticks.high = std::max(high, ticks.values.empty() ? high : ticks.values.back());
  return ticks;
}

Ticks log_ticks(double low, double high) {
  // Powers of ten say little about so short a piece.
  if (high < 4 * low && high - low > 1e-9 * high) return linear_ticks(low, high, 5, true);
  const int first = static_cast<int>(std::floor(std::log10(low) + 1e-9));
  const int last = std::max(static_cast<int>(std::ceil(std::log10(high) - 1e-9)), first + 1);
  const int every = (last - first + 7) / 8;
  std::vector<double> all;
  for (int exponent = first; exponent <= last; exponent += every) {
    for (const int digit : {1, 2, 5}) {
      if (digit == 1 || last - first <= 2) all.push_back(Step{digit, exponent}.multiple(1));
    }
  }
  if (all.back() < high) all.push_back(Step{1, first + (last - first + every - 1) / every * every}.multiple(1));
  // Marks from the last mark at or below the data to the first at or above.
  const auto above = std::upper_bound(all.begin(), all.end(), low * (1 + 1e-9));
  const auto begin = above == all.begin() ? above : above - 1;
  auto end = std::lower_bound(begin, all.end(), high * (1 - 1e-9));
  if (end == begin) ++end;
  if (end != all.end()) ++end;
  Ticks ticks;
  ticks.values.assign(begin, end);
  ticks.low = std::min(low, ticks.values.front());
  ticks.high = std::max(high, ticks.values.back());
  return ticks;
}

std::vector<std::string> tick_labels(const std::vector<double>& ticks) {
  const Unit unit = is_even(ticks) ? unit_for(ticks) : Unit{1.0, ""};
  std::vector<double> values;
  for (const double value : ticks) values.push_back(value / unit.size);
  const int decimals = is_even(ticks) ? decimals_for(values) : -1;
  std::vector<std::string> labels;
  for (const double value : values) {
    if (value == 0.0) {
      labels.emplace_back("0");
    } else {
      labels.push_back((decimals < 0 ? general(value) : fmt::format("{:.{}f}", value, decimals)) + unit.suffix);
    }
  }
  return labels;
}

}  // namespace lockstep::plot
