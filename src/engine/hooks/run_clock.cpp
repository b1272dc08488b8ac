// SPDX-License-Identifier: BSD-3-Clause
#include "run_clock.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::engine {

namespace {

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

void RunClock::step(double seconds, double data_seconds) {
  seconds_ += seconds;
  if (++steps_ <= warmup_) return;
  counted_seconds_ += seconds;
  data_seconds_ += data_seconds;
}

std::string RunClock::speed() const {
  const std::int64_t counted = steps_ - warmup_;
  if (counted <= 0 || counted_seconds_ <= 0) return "";
  return fmt::format("{} steps in {} ({:.4f} s a step, {:.0f} % of it waiting for data)", counted,
                     clock_text(counted_seconds_), counted_seconds_ / static_cast<double>(counted),
                     100 * data_seconds_ / counted_seconds_);
}

std::string RunClock::total(double now) const {
  const double all = now - begin_;
  return fmt::format("{} ({} in hooks)", clock_text(all), clock_text(all - seconds_));
}

}  // namespace lockstep::engine
