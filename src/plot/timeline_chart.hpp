// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::plot {

/// The kind of thing that a bar stands for; its color follows from its place in the chart's list.
struct BarKind {
  std::string name;
  bool is_thin = false;  ///< drawn as a line, for what is not at work
};

/// A stretch of the horizontal axis.
struct Bar {
  double begin;
  double end;
  std::size_t kind;  ///< index into TimelineChart::kinds
};

struct TimelineRow {
  std::string name;
  std::vector<Bar> bars;
};

struct TimelineChart {
  std::string title;
  std::string x_label;
  double end = 1;  ///< the horizontal axis goes from 0 to here; > 0
  std::vector<BarKind> kinds;
  std::vector<TimelineRow> rows;
  int width = 720;  ///< width in pixels; the height follows from the rows
};

/// Draws an SVG image. A bar shows its part within the axis, nothing where that is empty. The same chart gives the
/// same bytes.
std::string timeline_chart(const TimelineChart& chart);

}  // namespace lockstep::plot
