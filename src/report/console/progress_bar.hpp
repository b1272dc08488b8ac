// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "core/system/clock.hpp"

namespace lockstep::report {

struct BarProgress {
  std::int64_t done = 0;
  std::int64_t total = 0;  ///< 0 = not known, no bar is drawn
  std::optional<double> eta_seconds = {};
};

/// ` 45% [=========>          ] 900/2000 eta 0:01:23`, never longer than `width` columns.
std::string progress_text(const BarProgress& progress, std::size_t width);

/// Shows progress on the terminal, at most ten times a second; erases itself when it goes out of scope. Without a
/// terminal, and on other ranks than 0, it does nothing.
class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(const BarProgress& progress) { update(progress, SteadyClock::now()); }
  void update(const BarProgress& progress, SteadyClock::time_point now);

 private:
  bool is_seen_;
  std::optional<SteadyClock::time_point> last_;
};

}  // namespace lockstep::report
