// SPDX-License-Identifier: BSD-3-Clause
#include "plot/line_chart.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "svg_reading.hpp"

namespace lockstep::plot {
namespace line_chart_test {

/// The `d` of the paths and the centers of the dots that show data.
std::vector<std::string> data_of(const std::string& svg) {
  std::vector<std::string> shapes;
  for (const auto& [name, child] : parsed(svg)) {
    if (name == "path" && child.get("<xmlattr>.fill", "") == "none")
      shapes.push_back(child.get<std::string>("<xmlattr>.d"));
    if (name == "circle") {
      shapes.push_back("dot " + child.get<std::string>("<xmlattr>.cx") + " " + child.get<std::string>("<xmlattr>.cy"));
    }
  }
  return shapes;
}

/// The box of a plot without title, labels and names depends on the tick labels alone: x 40.1 to 696, y 24 to 388.
LineChart bare(std::vector<Point> points) {
  LineChart chart;
  chart.series = {{"", std::move(points)}};
  return chart;
}

TEST(LineChartTest, DrawsTitleLabelsTicksAndNames) {
  LineChart chart{
      .title = "Loss", .x_label = "step", .y_label = "nats", .series = {{"train", {{0, 1}, {100, 0}}}, {"val", {}}}};
  const auto texts = texts_of(line_chart(chart));
  for (const char* const text : {"Loss", "step", "nats", "train", "val", "0", "0.2", "1.0", "20", "100"}) {
    EXPECT_TRUE(contains(texts, text)) << text;
  }
  EXPECT_FALSE(contains(texts, "no data"));
}

TEST(LineChartTest, PlacesPointsByTheAxes) {
  EXPECT_EQ(data_of(line_chart(bare({{0, 0}, {0.5, 0.5}, {1, 1}}))),
            (std::vector<std::string>{"M40.1 388L368.05 206L696 24"}));
  LineChart chart = bare({{0, 1}, {1, 10}, {2, 100}});
  chart.log_y = true;
  EXPECT_EQ(data_of(line_chart(chart)), (std::vector<std::string>{"M40.1 388L368.05 206L696 24"}));
}

TEST(LineChartTest, PlacesPointsByLogarithmsAlongX) {
  LineChart chart = bare({{0, 0.25}, {1, 0}, {10, 0.5}, {100, 1}});
  chart.log_x = true;
  EXPECT_EQ(data_of(line_chart(chart)), (std::vector<std::string>{"M40.1 388L368.05 206L696 24"})) << "0 has no place";
  const auto texts = texts_of(line_chart(chart));
  for (const char* const text : {"1", "10", "100"}) EXPECT_TRUE(contains(texts, text)) << text;
}

TEST(LineChartTest, WhatIsNotFiniteBreaksTheLine) {
  const double nan = std::nan("");
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(data_of(line_chart(bare({{0, 0}, {0.2, 0.2}, {0.5, nan}, {0.8, 0.8}, {1, 1}}))),
            (std::vector<std::string>{"M40.1 388L171.28 315.2M564.82 96.8L696 24"}));
  EXPECT_EQ(data_of(line_chart(bare({{0, 0}, {0.25, inf}, {0.5, 0.5}, {0.75, -inf}, {nan, 3}, {1, 1}}))),
            (std::vector<std::string>{"dot 40.1 388", "dot 368.05 206", "dot 696 24"}));
}

TEST(LineChartTest, OnALogarithmicAxisZeroBreaksTheLine) {
  LineChart chart = bare({{0, 1}, {0.5, 10}, {0.75, 0}, {1, 100}});
  chart.log_y = true;
  EXPECT_EQ(data_of(line_chart(chart)), (std::vector<std::string>{"M40.1 388L368.05 206", "dot 696 24"}));
}

TEST(LineChartTest, NoDataIsSaid) {
  for (const bool log_y : {false, true}) {
    for (LineChart chart : {LineChart{}, bare({}), bare({{1, std::nan("")}})}) {
      chart.log_y = log_y;
      EXPECT_TRUE(contains(texts_of(line_chart(chart)), "no data"));
      EXPECT_TRUE(data_of(line_chart(chart)).empty());
    }
  }
}

TEST(LineChartTest, OnePointIsADotInTheMiddle) {
  const auto shapes = data_of(line_chart(bare({{100, 2}})));
  ASSERT_EQ(shapes.size(), 1u);
  EXPECT_EQ(shapes[0], "dot 368.05 206");
}

TEST(LineChartTest, TextsAreEscaped) {
  const std::string odd = "a<b> & \"c\"";
  const LineChart chart{.title = odd, .x_label = odd, .y_label = "line\nend\x01", .series = {{odd, {{0, 0}}}}};
  const auto texts = texts_of(line_chart(chart));
  EXPECT_EQ(std::count(texts.begin(), texts.end(), odd), 3);
  EXPECT_TRUE(contains(texts, "line end "));
}

TEST(LineChartTest, TheSameChartGivesTheSameBytes) {
  LineChart chart = bare({});
  for (int i = 0; i < 100; ++i) chart.series[0].points.push_back({i / 3.0, std::sin(i)});
  const std::string svg = line_chart(chart);
  EXPECT_EQ(svg, line_chart(chart));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  chart.series[0].points[50].y += 0.1;
  EXPECT_NE(svg, line_chart(chart));
}

TEST(LineChartTest, ManySeriesAreDistinguished) {
  LineChart chart;
  for (int i = 0; i < 12; ++i) chart.series.push_back({"series number " + std::to_string(i), {{0, 1}, {1, 2.0 * i}}});
  std::set<std::string> strokes;
  std::size_t lines = 0;
  for (const auto& [name, child] : parsed(line_chart(chart))) {
    if (name != "path" || child.get("<xmlattr>.fill", "") != "none") continue;
    strokes.insert(child.get("<xmlattr>.stroke", "") + child.get("<xmlattr>.stroke-dasharray", ""));
    ++lines;
  }
  EXPECT_EQ(strokes.size(), 12u);
  EXPECT_EQ(lines, 24u);  // lines in the plot and in the legend
}

TEST(LineChartTest, SeveralChartsStandOneBelowTheOther) {
  LineChart first = bare({{0, 0}, {1, 1}});
  LineChart second = bare({{0, 1}, {1, 0}});
  first.title = "up";
  second.title = "down";
  second.height = 200;
  const std::string svg = line_charts({first, second});
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"620\"")) << svg;
  EXPECT_NE(svg.find("<svg y=\"420\" xmlns"), std::string::npos) << svg;
  EXPECT_TRUE(contains(texts_of(line_chart(first)), "up"));
  EXPECT_EQ(line_charts({first}), line_chart(first));
}

}  // namespace line_chart_test
}  // namespace lockstep::plot
