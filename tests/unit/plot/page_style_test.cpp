// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <regex>

#include "plot/line_chart.hpp"
#include "plot/matrix_chart.hpp"
#include "plot/svg.hpp"
#include "plot/timeline_chart.hpp"

namespace lockstep::plot {
namespace page_style_test {

// Whatever color a chart uses is one that a page may change, but for the ground, which the page takes away.
TEST(PageStyleTest, KnowsEveryColorOfTheCharts) {
  LineChart lines{.title = "t", .x_label = "x", .y_label = "y", .series = {}};
  for (int i = 0; i < 9; ++i) lines.series.push_back({"s", {{0, 1.0 * i}, {1, 2.0 * i}}});
  const TimelineChart timeline{.title = "t", .x_label = "x", .kinds = {{"k"}}, .rows = {{"r", {{0, 1, 0}}}}};
  const MatrixChart matrix{.title = "t", .row_label = "r", .column_label = "c", .classes = 2, .counts = {5, 1, 2, 2}};
  const std::string css = page_style();
  const std::string charts = line_chart(lines) + timeline_chart(timeline) + matrix_chart(matrix);
  const std::regex color("(fill|stroke)=\"(#[0-9a-f]{6})\"");
  int seen = 0;
  for (std::sregex_iterator it(charts.begin(), charts.end(), color), end; it != end; ++it, ++seen) {
    EXPECT_NE(css.find("[" + it->str() + "]"), std::string::npos) << it->str();
  }
  EXPECT_GT(seen, 20);
}

}  // namespace page_style_test
}  // namespace lockstep::plot
