// SPDX-License-Identifier: BSD-3-Clause
#include "report/console/eta.hpp"

#include <algorithm>

namespace lockstep::report {

Eta::Eta(std::size_t window) : window_(std::max<std::size_t>(window, 1)) {}

void Eta::add(double step_seconds) {
  if (recent_.size() < window_) {
    recent_.push_back(step_seconds);
  } else {
    recent_[next_] = step_seconds;
    next_ = (next_ + 1) % window_;
  }
}

std::optional<double> Eta::median_step_seconds() const {
  if (recent_.empty()) return std::nullopt;
  std::vector<double> sorted = recent_;
  const std::size_t middle = sorted.size() / 2;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(middle), sorted.end());
  const double upper = sorted[middle];
  if (sorted.size() % 2 == 1) return upper;
  return 0.5 * (*std::max_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(middle)) + upper);
}

std::optional<double> Eta::seconds_left(std::int64_t steps_left) const {
  const std::optional<double> median = median_step_seconds();
  if (!median) return std::nullopt;
  return *median * static_cast<double>(std::max<std::int64_t>(steps_left, 0));
}

}  // namespace lockstep::report
