// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/histogram.hpp"

#include <algorithm>

namespace lockstep::ckpt {

BinCounts histogram_of(const Array& array, std::size_t bins) {
  const Statistics span = statistics_of(array);
  BinCounts found{.low = span.min, .high = span.max, .counts = std::vector<std::int64_t>(bins, 0)};
  found.nans = span.nans;
  found.infs = span.infs;
  if (found.low == found.high) {
    const double room = found.low == 0.0 ? 0.5 : 0.5 * std::abs(found.low);
    found.low -= room;
    found.high += room;
  }
  const double width = found.high / static_cast<double>(bins) - found.low / static_cast<double>(bins);
  with_numbers(array, [&](auto load, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<double>(load(i));
      if (!std::isfinite(value)) continue;
      const double place = std::clamp(std::floor((value - found.low) / width), 0.0, static_cast<double>(bins - 1));
      ++found.counts[static_cast<std::size_t>(place)];
    }
  });
  return found;
}

}  // namespace lockstep::ckpt
