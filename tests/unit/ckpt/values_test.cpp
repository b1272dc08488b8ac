// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/values.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "arrays.hpp"

namespace lockstep::ckpt {
namespace values_test {

using Counts = std::vector<std::int64_t>;

TEST(HistogramTest, ANumberBetweenTwoBinsBelongsToTheUpper) {
  const BinCounts found = histogram_of(floats({0, 1, 1.5F, 2, 3, 4}), 4);
  EXPECT_EQ(found.low, 0.0);
  EXPECT_EQ(found.high, 4.0);
  EXPECT_EQ(found.counts, (Counts{1, 2, 1, 2}));  // 4 itself is in the last
  EXPECT_EQ(found.edge(1), 1.0);
  EXPECT_EQ(found.edge(4), 4.0);
}

TEST(HistogramTest, WhatIsNotFiniteIsCountedApart) {
  const float inf = std::numeric_limits<float>::infinity();
  const BinCounts found = histogram_of(floats({-1, inf, -inf, std::numeric_limits<float>::quiet_NaN(), 1}), 2);
  EXPECT_EQ(found.counts, (Counts{1, 1}));
  EXPECT_EQ(found.infs, 2U);
  EXPECT_EQ(found.nans, 1U);
}

TEST(HistogramTest, ASingleValueHasRoomOnBothSides) {
  const BinCounts found = histogram_of(floats({4, 4, 4}), 2);
  EXPECT_EQ(found.low, 2.0);
  EXPECT_EQ(found.high, 6.0);
  EXPECT_EQ(found.counts, (Counts{0, 3}));
  EXPECT_EQ(histogram_of(floats({}), 3).counts, (Counts{0, 0, 0}));
}

TEST(ElementTest, EveryTypeAsText) {
  const NumberFormat plain;
  EXPECT_EQ(element_text(floats({0.1F, -2}), 0, plain), "0.1");
  EXPECT_EQ(element_text(floats({0.1F}), 0, {.digits = 9}), "0.100000001");
  EXPECT_EQ(element_text(floats({1}), 0, {.is_hex = true}), "0x3f800000");
  EXPECT_EQ(element_text(array_of(DType::float16, std::vector<std::uint16_t>{0x3C00}), 0, plain), "1");
  EXPECT_EQ(element_text(array_of(DType::bfloat16, std::vector<std::uint16_t>{0xC000}), 0, plain), "-2");
  EXPECT_EQ(element_text(array_of(DType::int64, std::vector<std::int64_t>{INT64_MIN}), 0, plain),
            "-9223372036854775808");
  EXPECT_EQ(element_text(array_of(DType::boolean, std::vector<std::uint8_t>{0, 1}), 1, plain), "true");
  EXPECT_EQ(element_text(array_of(DType::complex64, std::vector<float>{0, 0, 1, -2}), 1, plain), "1-2i");
}

TEST(StatisticsTest, DeviationAndLargestMagnitude) {
  const Statistics found = statistics_of(floats({-3, 1, -3, 1}));  // mean -1, mean square 5
  EXPECT_EQ(deviation_of(found), 2.0);
  EXPECT_EQ(absmax_of(found), 3.0);
}

}  // namespace values_test
}  // namespace lockstep::ckpt
