// SPDX-License-Identifier: BSD-3-Clause
#include "engine/measures/run_clock.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/text/duration.hpp"

namespace lockstep::engine {

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
                     clock_text(std::round(counted_seconds_)), counted_seconds_ / static_cast<double>(counted),
                     100 * data_seconds_ / counted_seconds_);
}

std::string RunClock::total(double now) const {
  const double all = now - begin_;
  return fmt::format("{} ({} in hooks)", clock_text(std::round(all)), clock_text(std::round(all - seconds_)));
}

}  // namespace lockstep::engine
