// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace lockstep {

/// Seconds in a time span that people or slurm write: "5400", "90.5", "90:00" (M:SS), "1:30:00" (H:MM:SS) or
/// "2-01:30:00" (days first).
/// @return  none when it is none of these, negative, or its minutes or seconds after a colon are beyond 59
std::optional<double> parse_duration(const std::string& text);

/// `0:01:23`, with `1 day, ` or `2 days, ` before it from 24 hours on; parts of a second are dropped.
std::string clock_text(double seconds);

/// `0.5 s`, with one decimal place.
std::string seconds_text(double seconds);

using SteadyClock = std::chrono::steady_clock;

/// Seconds of the monotonic clock from `begin` to `end`.
inline double seconds_between(SteadyClock::time_point begin, SteadyClock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// Seconds of the monotonic clock since `begin`.
inline double seconds_since(SteadyClock::time_point begin) { return seconds_between(begin, SteadyClock::now()); }

}  // namespace lockstep
