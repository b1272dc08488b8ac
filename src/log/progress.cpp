// SPDX-License-Identifier: BSD-3-Clause
#include "log/progress.hpp"

#include <lockstep/log/log.hpp>

namespace lockstep::log {

ProgressLine::~ProgressLine() { status(""); }

void ProgressLine::show(const std::string& text) {
  if (stdout_is_terminal()) return status(text);
  const auto now = std::chrono::steady_clock::now();
  if (now - shown_ < between_) return;
  shown_ = now;
  info(text);
}

}  // namespace lockstep::log
