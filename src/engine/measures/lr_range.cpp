// SPDX-License-Identifier: BSD-3-Clause
#include "engine/measures/lr_range.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::engine {

namespace {

constexpr double kOldShare = 0.9;  // weight of the old mean when a new loss is added
constexpr double kDiverged = 4;

}  // namespace

double LrRange::rate(std::int64_t step) const {
  const double where = static_cast<double>(step) / static_cast<double>(steps - 1);
  return lowest * std::pow(highest / lowest, where);
}

bool add_point(std::vector<LrPoint>& points, double lr, double loss) {
  if (!std::isfinite(loss)) return false;
  // The weights of n losses have the sum 1 - 0.9^n.
  const auto weights = [](std::size_t count) { return 1 - std::pow(kOldShare, static_cast<double>(count)); };
  const double sum = points.empty() ? 0 : points.back().smoothed * weights(points.size());
  const double smoothed = (kOldShare * sum + (1 - kOldShare) * loss) / weights(points.size() + 1);
  points.push_back({lr, loss, smoothed});
  const auto lowest = std::min_element(points.begin(), points.end(),
                                       [](const LrPoint& a, const LrPoint& b) { return a.smoothed < b.smoothed; });
  return smoothed <= kDiverged * lowest->smoothed;
}

std::optional<double> suggested_lr(const std::vector<LrPoint>& points) {
  std::optional<double> suggestion;
  double steepest = 0;
  for (std::size_t i = 1; i + 1 < points.size(); ++i) {
    const double slope =
        (points[i + 1].smoothed - points[i - 1].smoothed) / std::log(points[i + 1].lr / points[i - 1].lr);
    if (slope >= steepest) continue;
    steepest = slope;
    suggestion = points[i].lr;
  }
  return suggestion;
}

}  // namespace lockstep::engine
