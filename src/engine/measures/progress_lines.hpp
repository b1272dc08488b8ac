// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep::engine {

/// Logs how far a long loop is, at most every five seconds. A loop that takes less time logs nothing.
class ProgressLines {
 public:
  /// @param what   name of the work, for example "evaluation"
  /// @param total  batches of this rank
  ProgressLines(std::string what, std::int64_t total);

  /// @param done  batches so far
  void show(std::int64_t done);

 private:
  std::string what_;
  std::int64_t total_;
  std::chrono::steady_clock::time_point began_;
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace lockstep::engine
