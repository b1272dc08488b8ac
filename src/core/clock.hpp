// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>

namespace lockstep {

/// Seconds of the monotonic clock from `begin` to `end`.
inline double seconds_between(std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// Seconds of the monotonic clock since `begin`.
inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return seconds_between(begin, std::chrono::steady_clock::now());
}

}  // namespace lockstep
