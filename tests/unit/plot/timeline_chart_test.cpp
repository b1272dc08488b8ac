// SPDX-License-Identifier: BSD-3-Clause
#include "plot/timeline_chart.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "svg_reading.hpp"

namespace lockstep::plot {
namespace timeline_chart_test {

using Boxes = std::vector<std::string>;

/// "x y width height" of the boxes of one color, behind the legend's where there is one.
Boxes boxes_of(const std::string& svg, const std::string& color) {
  Boxes boxes;
  for (const auto& [name, child] : parsed(svg)) {
    if (name != "rect" || child.get("<xmlattr>.fill", "") != color) continue;
    const auto part = [&child = child](const char* key) { return child.get<std::string>(key); };
    boxes.push_back(part("<xmlattr>.x") + " " + part("<xmlattr>.y") + " " + part("<xmlattr>.width") + " " +
                    part("<xmlattr>.height"));
  }
  return boxes;
}

const std::string kFirst = "#1f6fb4";
const std::string kSecond = "#d1495b";

/// The axis goes from 20 to 696 if there are no texts, and the first row's middle is at 30.
TimelineChart bare(std::vector<TimelineRow> rows) {
  return {.title = "", .x_label = "", .end = 10, .kinds = {{""}, {"", true}}, .rows = std::move(rows)};
}

TEST(TimelineChartTest, PlacesBarsByTimeRowAndKind) {
  const std::string svg = timeline_chart(bare({{"", {{0, 5, 0}, {5, 10, 1}}}, {"", {{2.5, 7.5, 0}}}}));
  EXPECT_EQ(boxes_of(svg, kFirst), (Boxes{"20 23 338 14", "189 45 338 14"}));
  EXPECT_EQ(boxes_of(svg, kSecond), Boxes{"358 28.5 338 3"});
}

TEST(TimelineChartTest, ShowsOnlyWhatLiesWithinTheAxis) {
  const double nan = std::nan("");
  const double inf = std::numeric_limits<double>::infinity();
  const std::string svg = timeline_chart(bare(
      {{"", {{-5, 5, 0}, {3, 3, 0}, {4, 2, 0}, {nan, 1, 0}, {1, nan, 0}, {5, inf, 0}, {11, 12, 0}, {-2, -1, 0}}}}));
  EXPECT_EQ(boxes_of(svg, kFirst), (Boxes{"20 23 338 14", "358 23 338 14"}));
}

TEST(TimelineChartTest, DrawsTitleRowsKindsAndMarks) {
  const std::string odd = "a<b> & \"c\"";
  const TimelineChart chart{.title = odd,
                            .x_label = "ms",
                            .end = 10,
                            .kinds = {{"compute"}, {odd, true}},
                            .rows = {{"rank 0", {{0, 1, 0}}}, {odd, {}}}};
  const auto texts = texts_of(timeline_chart(chart));
  EXPECT_EQ(std::count(texts.begin(), texts.end(), odd), 3);
  for (const char* const text : {"ms", "compute", "rank 0", "0", "10"}) EXPECT_TRUE(contains(texts, text)) << text;
  EXPECT_EQ(boxes_of(timeline_chart(chart), kSecond).size(), 1u);  // boxes in the legend
  EXPECT_EQ(timeline_chart(chart), timeline_chart(chart));
}

TEST(TimelineChartTest, IsAsHighAsItsRows) {
  const auto height_with = [](std::size_t rows) {
    return parsed(timeline_chart(bare(std::vector<TimelineRow>(rows)))).get<int>("<xmlattr>.height");
  };
  EXPECT_EQ(height_with(0), 54);
  EXPECT_EQ(height_with(100) - height_with(0), 2200);
}

}  // namespace timeline_chart_test
}  // namespace lockstep::plot
