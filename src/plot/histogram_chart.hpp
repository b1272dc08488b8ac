// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::plot {

/// A dashed line across the chart at a place of the horizontal axis; drawn where that is in view.
struct Mark {
  double x;
  std::string name;
};

struct HistogramChart {
  std::string title;
  std::string x_label;
  std::string y_label;
  double low = 0;  ///< where the first bin begins; low < high
  double high = 1;
  std::vector<std::int64_t> counts;  ///< of equally wide bins
  std::vector<Mark> marks = {};
  bool log_y = true;
  int width = 720;  ///< in pixels
  int height = 420;
};

/// Draws an SVG image. The same chart gives the same bytes.
std::string histogram_chart(const HistogramChart& chart);

}  // namespace lockstep::plot
