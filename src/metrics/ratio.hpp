// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace lockstep::metrics {

/// part / whole; 0 where the whole is 0.
inline double ratio(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}
inline double ratio(double part, double whole) { return whole == 0 ? 0 : part / whole; }

}  // namespace lockstep::metrics
