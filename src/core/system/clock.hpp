// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>

namespace lockstep {

using SteadyClock = std::chrono::steady_clock;

/// Seconds of the monotonic clock from `begin` to `end`.
inline double seconds_between(SteadyClock::time_point begin, SteadyClock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// Seconds of the monotonic clock since `begin`.
inline double seconds_since(SteadyClock::time_point begin) { return seconds_between(begin, SteadyClock::now()); }

}  // namespace lockstep
