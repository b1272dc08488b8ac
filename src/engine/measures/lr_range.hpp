// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::engine {

/// A learning-rate range test: the rate increases exponentially from step to step. Source: Smith, "Cyclical Learning
/// Rates for Training Neural Networks" (2017).
struct LrRange {
  double lowest = 1e-7;      ///< > 0
  double highest = 10;       ///< > lowest
  std::int64_t steps = 100;  ///< >= 2

  /// The rate of a step, from 0 to steps - 1.
  double rate(std::int64_t step) const;
};

struct LrPoint {
  double lr = 0;
  double loss = 0;      ///< loss of this step
  double smoothed = 0;  ///< mean of the losses so far, with exponentially decreasing weights
};

/// Adds the point of one step.
/// @return  false = the loss diverges: it is not finite, or its mean exceeds four times the lowest mean
bool add_point(std::vector<LrPoint>& points, double lr, double loss);

/// The rate at which the mean loss decreases fastest per factor of the rate; none = it never decreases, or there are
/// fewer than three points.
std::optional<double> suggested_lr(const std::vector<LrPoint>& points);

}  // namespace lockstep::engine
