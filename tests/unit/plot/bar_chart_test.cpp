// SPDX-License-Identifier: BSD-3-Clause
#include "plot/bar_chart.hpp"

#include <gtest/gtest.h>

#include "plot/histogram_chart.hpp"
#include "svg_reading.hpp"

namespace lockstep::plot {
namespace bar_chart_test {

/// Left edge and width of each filled box, without the ground.
std::vector<std::string> boxes_of(const std::string& svg) {
  std::vector<std::string> boxes;
  for (const auto& [name, child] : parsed(svg)) {
    if (name != "rect" || child.get("<xmlattr>.fill", "") == "#ffffff") continue;
    boxes.push_back(child.get<std::string>("<xmlattr>.x") + " " + child.get<std::string>("<xmlattr>.width"));
  }
  return boxes;
}

// Without names the box goes from 20 to 676 of 700.
TEST(BarChartTest, BarsBeginAtZero) {
  BarChart chart{.title = "", .x_label = "", .kinds = {"a"}, .rows = {{"", {4}}, {"", {1}}}};
  chart.width = 700;
  EXPECT_EQ(boxes_of(bar_chart(chart)), (std::vector<std::string>{"20 656", "20 164"}));
}

TEST(BarChartTest, LogarithmicWithBandAndDots) {
  BarChart chart{.title = "T", .x_label = "X", .kinds = {"rms", "largest"}, .rows = {{"w", {0.01, 1}}}};
  chart.band = Band{0.01, 0.1, "healthy"};
  chart.log_x = true;
  const std::string svg = bar_chart(chart);
  const auto texts = texts_of(svg);
  for (const char* const text : {"T", "X", "rms", "largest", "healthy", "w", "0.01", "1"}) {
    EXPECT_TRUE(contains(texts, text)) << text;
  }
  EXPECT_NE(svg.find("<circle"), std::string::npos);
}

TEST(BarChartTest, WhatCannotBeDrawnIsWritten) {
  BarChart chart{.title = "", .x_label = "", .kinds = {"a"}, .rows = {{"w", {0}}, {"v", {1}}}};
  chart.log_x = true;
  EXPECT_TRUE(contains(texts_of(bar_chart(chart)), "0"));
  chart.rows.clear();
  EXPECT_TRUE(contains(texts_of(bar_chart(chart)), "no data"));
}

TEST(HistogramChartTest, ABarForEachBinThatIsNotEmpty) {
  HistogramChart chart{
      .title = "T", .x_label = "value", .y_label = "elements", .low = 0, .high = 4, .counts = {1, 0, 10, 100}};
  chart.marks = {{3, "mark"}, {9, "out of view"}};
  const std::string svg = histogram_chart(chart);
  EXPECT_EQ(boxes_of(svg).size(), 3U);
  const auto texts = texts_of(svg);
  for (const char* const text : {"T", "value", "elements", "1", "10", "100", "0", "4.0", "mark"}) {
    EXPECT_TRUE(contains(texts, text)) << text;
  }
  EXPECT_FALSE(contains(texts, "out of view"));
}

}  // namespace bar_chart_test
}  // namespace lockstep::plot
