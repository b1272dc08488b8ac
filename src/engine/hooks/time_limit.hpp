// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <string>

namespace lockstep::engine {

/// When a run has to be over.
struct TimeLimit {
  std::chrono::steady_clock::time_point end;
  double seconds = 0;  ///< time from the start to the end
  std::string source;  ///< who says so, for messages
};

}  // namespace lockstep::engine
