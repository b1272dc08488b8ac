// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace lockstep::plot {

struct Point {
  double x;
  double y;
};

/// A line through its points in their order. A point that is not finite (or not above 0 on a logarithmic axis) breaks
/// the line; a point left alone becomes a dot.
struct Series {
  std::string name;
  std::vector<Point> points;
};

struct LineChart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
  bool log_y = false;
  bool log_x = false;
  int width = 720;  ///< width in pixels
  int height = 420;
};

/// Draws an SVG image. The same chart gives the same bytes.
std::string line_chart(const LineChart& chart);

/// Draws several charts one below the other.
std::string line_charts(const std::vector<LineChart>& charts);

}  // namespace lockstep::plot
