// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/measurements.hpp>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace lockstep {

Histogram histogram_of(std::span<const float> values, std::size_t bins) {
  if (values.empty() || bins == 0) throw std::invalid_argument("histogram_of: no values or no bins");
  Histogram histogram;
  const auto [min, greatest] = std::minmax_element(values.begin(), values.end());
  histogram.min = *min;
  histogram.max = *greatest;
  histogram.count = static_cast<std::int64_t>(values.size());
  histogram.counts.resize(bins);
  const double width = (histogram.max - histogram.min) / static_cast<double>(bins);
  for (std::size_t i = 1; i <= bins; ++i) histogram.ends.push_back(histogram.min + width * static_cast<double>(i));
  histogram.ends.back() = histogram.max;
  for (const float value : values) {
    if (!std::isfinite(value)) throw std::invalid_argument("histogram_of: a value is not finite");
    const double place = width == 0 ? 0 : std::floor((value - histogram.min) / width);
    ++histogram.counts[std::min(static_cast<std::size_t>(place), bins - 1)];
    histogram.sum += value;
    histogram.sum_squares += static_cast<double>(value) * value;
  }
  return histogram;
}

std::optional<double> number_in(const NamedValue& value) {
  if (const auto* const real = std::get_if<double>(&value)) return *real;
  if (const auto* const integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  return std::nullopt;
}

std::optional<double> Record::number(const std::string& name) const {
  for (const auto& [key, value] : values) {
    if (key == name) return number_in(value);
  }
  return std::nullopt;
}

}  // namespace lockstep
