// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "ckpt/reading/values.hpp"

namespace lockstep::ckpt {

/// The number of finite values of an array in each of equally wide bins from `low` to `high`. A number between two bins
/// belongs to the upper one, and `high` to the last.
struct BinCounts {
  double low = 0.0;
  double high = 1.0;
  std::vector<std::int64_t> counts;
  std::uint64_t nans = 0;
  std::uint64_t infs = 0;

  /// The lower edge of bin `i`; edge(counts.size()) is `high`.
  double edge(std::size_t i) const {
    return low + (high - low) * static_cast<double>(i) / static_cast<double>(counts.size());
  }
};

/// Bins from the smallest to the largest number; a single value gets bins on both sides, and an array without finite
/// numbers the bins of 0.
/// @param bins  >= 1
BinCounts histogram_of(const Array& array, std::size_t bins);

}  // namespace lockstep::ckpt
