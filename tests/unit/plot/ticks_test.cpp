// SPDX-License-Identifier: BSD-3-Clause
#include "plot/ticks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace lockstep::plot {
namespace ticks_test {

using Values = std::vector<double>;
using Labels = std::vector<std::string>;

TEST(TicksTest, LinearMarksAreMultiplesOfOneTwoOrFive) {
  EXPECT_EQ(linear_ticks(0, 1, 5, false).values, (Values{0, 0.2, 0.4, 0.6, 0.8, 1}));
  EXPECT_EQ(linear_ticks(0, 2000, 5, false).values, (Values{0, 500, 1000, 1500, 2000}));
  EXPECT_EQ(linear_ticks(-1, 1, 4, false).values, (Values{-1, -0.5, 0, 0.5, 1}));
  EXPECT_EQ(linear_ticks(0, 3e-4, 3, false).values, (Values{0, 1e-4, 2e-4, 3e-4}));
  EXPECT_EQ(linear_ticks(0, 0.3, 3, false).values, (Values{0, 0.1, 0.2, 0.3}));  // not 0.30000000000000004
}

TEST(TicksTest, AWidenedAxisBeginsAndEndsAtMarks) {
  const Ticks inside = linear_ticks(1.58, 4.19, 6, false);
  EXPECT_EQ(inside.values, (Values{2, 2.5, 3, 3.5, 4}));
  EXPECT_EQ(inside.low, 1.58);
  EXPECT_EQ(inside.high, 4.19);
  const Ticks widened = linear_ticks(1.58, 4.19, 6, true);
  EXPECT_EQ(widened.values, (Values{1.5, 2, 2.5, 3, 3.5, 4, 4.5}));
  EXPECT_EQ(widened.low, 1.5);
  EXPECT_EQ(widened.high, 4.5);
}

TEST(TicksTest, ASingleValueGetsRoom) {
  EXPECT_EQ(linear_ticks(0, 0, 4, true).values, (Values{-1, -0.5, 0, 0.5, 1}));
  EXPECT_EQ(linear_ticks(-2, -2, 4, true).values, (Values{-3, -2.5, -2, -1.5, -1}));
  const Ticks nearly = linear_ticks(1, std::nextafter(1, 2), 4, true);
  EXPECT_EQ(nearly.values, (Values{0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.6}));
  EXPECT_EQ(log_ticks(3, 3).values, (Values{2, 5}));
  EXPECT_EQ(log_ticks(1, 1).values, (Values{1, 2}));
}

TEST(TicksTest, LogMarksArePowersOfTenAroundTheData) {
  EXPECT_EQ(log_ticks(0.0005, 30).values, (Values{1e-4, 1e-3, 1e-2, 1e-1, 1, 10, 100}));
  EXPECT_EQ(log_ticks(0.3, 30).values, (Values{0.1, 1, 10, 100}));
  EXPECT_EQ(log_ticks(3, 60).values, (Values{2, 5, 10, 20, 50, 100}));
  EXPECT_EQ(log_ticks(1, 10).values, (Values{1, 2, 5, 10}));
  EXPECT_EQ(log_ticks(1.6, 4.1).values, (Values{1.5, 2, 2.5, 3, 3.5, 4, 4.5}));
  EXPECT_EQ(log_ticks(1e-20, 1).values.size(), 8u);
}

TEST(TicksTest, EveryRangeIsCoveredByAFewAscendingMarks) {
  for (int a = -200; a <= 200; a += 7) {
    for (int b = 0; b <= 40; ++b) {
      const double low = 1.37 * std::pow(10.0, a);
      const double high = low * std::pow(1.9, b);
      for (const Ticks& ticks :
           {log_ticks(low, high), linear_ticks(low, high, 6, true), linear_ticks(-high, -low, 6, true)}) {
        const bool is_negative = ticks.values.front() < 0 && ticks.values.back() <= 0;
        EXPECT_LE(ticks.low, is_negative ? -high : low);
        EXPECT_GE(ticks.high, is_negative ? -low : high);
        EXPECT_LT(ticks.low, ticks.high);
        EXPECT_GE(ticks.values.size(), 2u);
        EXPECT_LE(ticks.values.size(), 12u);
        EXPECT_TRUE(std::is_sorted(ticks.values.begin(), ticks.values.end(), std::less_equal<>()));
      }
      EXPECT_GT(log_ticks(low, high).low, 0);
    }
  }
}

TEST(TicksTest, LabelsAreShortAndOfOnePrecision) {
  EXPECT_EQ(tick_labels({0, 0.25, 0.5}), (Labels{"0", "0.25", "0.50"}));
  EXPECT_EQ(tick_labels({-1, -0.5, 0, 0.5}), (Labels{"-1.0", "-0.5", "0", "0.5"}));
  EXPECT_EQ(tick_labels({0, 5000}), (Labels{"0", "5000"}));
  EXPECT_EQ(tick_labels({0, 5000, 10000}), (Labels{"0", "5k", "10k"}));
  EXPECT_EQ(tick_labels({1250000, 1300000}), (Labels{"1.25M", "1.30M"}));
  EXPECT_EQ(tick_labels({0, 5e-5, 1e-4}), (Labels{"0", "0.5e-4", "1.0e-4"}));
  EXPECT_EQ(tick_labels({1e-4, 1e-2, 1, 100}), (Labels{"0.0001", "0.01", "1", "100"}));
  EXPECT_EQ(tick_labels({1e-6, 1e-5, 1e-4}), (Labels{"1e-6", "1e-5", "0.0001"}));
  EXPECT_EQ(tick_labels({1, 1e5, 1e12}), (Labels{"1", "100000", "1e12"}));
  EXPECT_EQ(tick_labels({2e9, 4e9}), (Labels{"2e9", "4e9"}));
  EXPECT_EQ(tick_labels({}), Labels{});
}

}  // namespace ticks_test
}  // namespace lockstep::plot
