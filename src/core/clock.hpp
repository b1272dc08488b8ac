// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>

namespace lockstep {

/// Seconds of the monotonic clock since `begin`.
inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace lockstep
