// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/log/log.hpp>

#include <chrono>
#include <string>

namespace lockstep::log {

/// The progress of work that can take minutes, such as the listing of a large folder: on a terminal a line that is
/// replaced (log::status), elsewhere a line of information after each interval. Shorter work logs nothing there. Not
/// thread-safe.
class ProgressLine {
 public:
  explicit ProgressLine(std::chrono::milliseconds between = std::chrono::seconds(10))
      : between_(between), shown_(std::chrono::steady_clock::now()) {}
  ~ProgressLine() { status(""); }  ///< erases the line on a terminal
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const std::string& text) {
    if (stdout_is_terminal()) return status(text);
    const auto now = std::chrono::steady_clock::now();
    if (now - shown_ < between_) return;
    shown_ = now;
    info(text);
  }

 private:
  std::chrono::milliseconds between_;
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace lockstep::log
