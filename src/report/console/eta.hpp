// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

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

}  // namespace lockstep::report
