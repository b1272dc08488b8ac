// SPDX-License-Identifier: BSD-3-Clause
#include "plot/matrix_chart.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

#include "svg_reading.hpp"

namespace lockstep::plot {
namespace matrix_chart_test {

MatrixChart chart_of(std::size_t classes, std::vector<double> counts) {
  return {.title = "t",
          .row_label = "class",
          .column_label = "predicted as",
          .classes = classes,
          .counts = std::move(counts)};
}

struct Cell {
  double x, y, opacity;
  std::string fill, tip;
};

/// Those rectangles that tell something to whoever points at them.
std::vector<Cell> cells_of(const std::string& svg) {
  std::vector<Cell> cells;
  for (const auto& [name, child] : parsed(svg)) {
    const auto tip = child.get_optional<std::string>("title");
    if (name != "rect" || !tip) continue;
    const Tree& a = child.get_child("<xmlattr>");
    cells.push_back(
        {a.get<double>("x"), a.get<double>("y"), a.get<double>("fill-opacity"), a.get<std::string>("fill"), *tip});
  }
  return cells;
}

TEST(MatrixChartTest, ShadesSharesOfRows) {
  const std::string svg = matrix_chart(chart_of(2, {30, 10, 0, 5}));
  const std::vector<Cell> cells = cells_of(svg);
  ASSERT_EQ(cells.size(), 3U) << "what was never counted is not drawn";
  EXPECT_EQ(cells[0].tip, "class 0, predicted as 0: 30 (75.0 %)");
  EXPECT_EQ(cells[1].tip, "class 0, predicted as 1: 10 (25.0 %)");
  EXPECT_EQ(cells[2].tip, "class 1, predicted as 1: 5 (100.0 %)");
  EXPECT_LT(cells[0].x, cells[1].x);
  EXPECT_EQ(cells[0].y, cells[1].y);
  EXPECT_EQ(cells[1].x, cells[2].x);
  EXPECT_LT(cells[1].y, cells[2].y) << "rows from the top";
  EXPECT_LT(cells[1].opacity, cells[0].opacity);
  EXPECT_NEAR(cells[0].opacity, 0.12 + 0.88 * 0.75, 0.01);
  EXPECT_NEAR(cells[1].opacity, 0.12 + 0.88 * 0.5, 0.01) << "the root of a quarter: mistakes are rare";
  EXPECT_EQ(cells[2].opacity, 1);
  EXPECT_EQ(cells[0].fill, cells[2].fill);
  EXPECT_NE(cells[0].fill, cells[1].fill) << "mistakes have a color of their own";
  for (const char* text : {"30", "10", "5", "class", "predicted as", "t"})
    EXPECT_TRUE(contains(texts_of(svg), text)) << text;
}

TEST(MatrixChartTest, CellsWithoutRoomShowTheirCountToThePointerOnly) {
  std::vector<double> counts(100 * 100);
  std::iota(counts.begin(), counts.end(), 1000);
  const std::string svg = matrix_chart(chart_of(100, counts));
  EXPECT_EQ(cells_of(svg).size(), counts.size());
  const std::vector<std::string> texts = texts_of(svg);
  EXPECT_LT(texts.size(), 60U) << "numbers of some classes, and labels";
  EXPECT_TRUE(contains(texts, "0"));
  EXPECT_FALSE(contains(texts, "1000"));
  EXPECT_FALSE(contains(texts, "1"));
}

TEST(MatrixChartTest, AnEmptyRowHasNoCells) { EXPECT_EQ(cells_of(matrix_chart(chart_of(2, {0, 0, 3, 0}))).size(), 1U); }

TEST(MatrixChartTest, RefusesOtherSizes) {
  EXPECT_THROW(matrix_chart(chart_of(2, {1, 2, 3})), std::invalid_argument);
  EXPECT_THROW(matrix_chart(chart_of(0, {})), std::invalid_argument);
}

}  // namespace matrix_chart_test
}  // namespace lockstep::plot
