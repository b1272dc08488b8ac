// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::engine {

/// The division of the time of a run into steps and the time between them. Times are seconds of one clock with any
/// zero.
class RunClock {
 public:
  /// @param warmup  first steps that are left out of the speed, >= 0
  explicit RunClock(std::int64_t warmup) : warmup_(warmup) {}

  void begin(double now) { begin_ = now; }
  /// @param seconds       that the step itself took
  /// @param data_seconds  of which it waited for data
  void step(double seconds, double data_seconds);

  /// "1000 steps in 0:00:10 (0.0100 s a step, 3 % of it waiting for data)"; empty = none was counted.
  std::string speed() const;
  /// "0:00:12 (0:00:02 in hooks)": all of it.
  std::string total(double now) const;

 private:
  std::int64_t warmup_;
  std::int64_t steps_ = 0;
  double begin_ = 0;
  double seconds_ = 0;          // seconds of all steps
  double counted_seconds_ = 0;  // seconds of the steps after warmup_
  double data_seconds_ = 0;     // part of counted_seconds_ spent waiting for data
};

}  // namespace lockstep::engine
