// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/session.hpp"

namespace lockstep::engine {
namespace lr_range_test {

TEST(LrRangeTest, RatesIncreaseByOneFactor) {
  const LrRange range{.lowest = 1e-4, .highest = 1, .steps = 5};
  for (const int step : {0, 1, 2, 3, 4}) EXPECT_NEAR(range.rate(step), std::pow(10.0, step - 4), 1e-12);
}

// 1 / (1 + (lr / 0.01)^2) is a logistic curve over log(lr): it is steepest at 0.01.
TEST(LrRangeTest, TheSuggestionIsWhereTheLossDecreasesFastest) {
  const LrRange range{.lowest = 1e-6, .highest = 100, .steps = 81};
  std::vector<LrPoint> points;
  for (std::int64_t step = 0; step < range.steps; ++step) {
    const double lr = range.rate(step);
    const double loss = 1 / (1 + std::pow(lr / 0.01, 2));
    points.push_back({lr, loss, loss});
  }
  ASSERT_TRUE(suggested_lr(points).has_value());
  EXPECT_NEAR(*suggested_lr(points), 0.01, 1e-9);
}

TEST(LrRangeTest, WithoutADecreaseThereIsNoSuggestion) {
  EXPECT_FALSE(suggested_lr({}).has_value());
  EXPECT_FALSE(suggested_lr({{0.1, 3, 3}, {0.2, 2, 2}}).has_value());
  EXPECT_FALSE(suggested_lr({{0.1, 1, 1}, {0.2, 2, 2}, {0.4, 3, 3}}).has_value());
}

TEST(LrRangeTest, MeansHaveDecreasingWeights) {
  std::vector<LrPoint> points;
  EXPECT_TRUE(add_point(points, 1, 2));
  EXPECT_TRUE(add_point(points, 2, 4));
  EXPECT_DOUBLE_EQ(points[0].smoothed, 2);
  EXPECT_NEAR(points[1].smoothed, (0.9 * 2 + 4) / 1.9, 1e-12);
}

TEST(LrRangeTest, FindsDivergence) {
  std::vector<LrPoint> points;
  EXPECT_TRUE(add_point(points, 1, 1));
  EXPECT_TRUE(add_point(points, 2, 4));     // the mean is 2.6
  EXPECT_FALSE(add_point(points, 3, 100));  // 38
  EXPECT_FALSE(add_point(points, 4, std::numeric_limits<double>::infinity()));
  EXPECT_EQ(points.size(), 3U);
}

}  // namespace lr_range_test
}  // namespace lockstep::engine
