// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/text/duration.hpp"

namespace lockstep::report {

/// Estimates the time left from the median of recent step times, which a pause or a slow first step does not move.
class Eta {
 public:
  /// @param window  how many recent steps count; >= 1
  explicit Eta(std::size_t window = 1000);

  void add(double step_seconds);
  std::optional<double> median_step_seconds() const;  ///< none before the first step
  std::optional<double> seconds_left(std::int64_t steps_left) const;

 private:
  std::size_t window_;
  std::size_t next_ = 0;  // index of the window's oldest entry
  std::vector<double> recent_;
};

/// The progress line on the console.
struct ConsoleValues {
  std::int64_t step = 0;
  std::int64_t total_steps = 0;  ///< 0 = not known
  std::int64_t epoch = 0;
  double loss = 0.0;
  double lr = 0.0;
  std::vector<std::pair<std::string, double>> group_lrs = {};  ///< rates by group, if they differ; replace `lr`
  double throughput = 0.0;
  std::string throughput_unit = "samples/s";  ///< or "tokens/s"
  double data_wait_share = 0.0;               ///< part of the interval spent waiting for data, in [0, 1]
  std::optional<double> grad_norm = {};
  std::optional<double> memory_mb = {};
  std::optional<double> mfu = {};  ///< model FLOPs utilization, in [0, 1]
  std::optional<double> eta_seconds = {};
};

/// `step 120/2000 epoch 1 loss 0.3214 lr 0.00100 samples/s 10234 data-wait 1.2% grad-norm 0.53 mem 512M mfu
/// 41% eta 0:01:23`
///
/// The order never changes; what is not known is left out.
std::string console_line(const ConsoleValues& values);

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
