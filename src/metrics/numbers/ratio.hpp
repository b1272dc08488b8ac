// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <limits>

namespace lockstep::metrics {

/// The value of what is not defined.
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// part / whole; 0 where the whole is 0.
inline double ratio(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}
inline double ratio(double part, double whole) { return whole == 0 ? 0 : part / whole; }
/// The same, but NaN where the whole is 0.
inline double defined_ratio(std::int64_t part, std::int64_t whole) { return whole == 0 ? kNan : ratio(part, whole); }

}  // namespace lockstep::metrics
