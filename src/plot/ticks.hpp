// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace lockstep::plot {

/// The part of the number line that an axis shows, and where it is marked.
struct Ticks {
  double low = 0.0;  ///< low < high
  double high = 1.0;
  std::vector<double> values;  ///< ascending, all within [low, high]
};

/// Marks at multiples of 1, 2 or 5 times a power of ten, about `wanted` of them.
///
/// @param low, high  what the data spans; low <= high. A single value is given room on both sides.
/// @param is_widened  whether the axis grows until it begins and ends at a mark
Ticks linear_ticks(double low, double high, int wanted, bool is_widened);

/// Marks at powers of ten, with 2 and 5 times those where few powers are in view, and even marks below a ratio of four;
/// begins and ends at a mark.
/// @param low, high  0 < low <= high
Ticks log_ticks(double low, double high);

/// Short texts, of equal precision where the marks are evenly spaced: 0.25 0.50, 10k 20k, 1.5e-5 2.0e-5.
std::vector<std::string> tick_labels(const std::vector<double>& ticks);

}  // namespace lockstep::plot
