// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep::plot {

struct BarChartRow {
  std::string name;
  std::vector<double> values;  ///< one for each name in BarChart::kinds
};

/// A stretch of the value axis that is shaded.
struct Band {
  double low;
  double high;
  std::string name;
};

/// A row for each name, with values to the right: the first kind is a bar, the others are dots. A value that cannot be
/// drawn (not finite, or not above 0 on a logarithmic axis) is written out instead.
struct BarChart {
  std::string title;
  std::string x_label;
  std::vector<std::string> kinds;
  std::vector<BarChartRow> rows;
  std::optional<Band> band = {};
  bool log_x = false;
  int width = 720;  ///< in pixels; the height follows from the rows
};

/// Draws an SVG image. The same chart gives the same bytes.
std::string bar_chart(const BarChart& chart);

}  // namespace lockstep::plot
