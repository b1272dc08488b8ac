// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "arrays.hpp"
#include "ckpt/reading/values.hpp"

namespace lockstep::ckpt {
namespace compare_test {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(CompareTest, EqualArraysDoNotDiffer) {
  const Comparison found = compare(floats({1, -2, 0, kInf}), floats({1, -2, 0, kInf}), {});
  EXPECT_EQ(found.differing, 0);
  EXPECT_EQ(found.max_abs, 0.0);
  EXPECT_FALSE(found.first);
}

TEST(CompareTest, StatesTheLargestDifferencesAndTheFirstPlace) {
  // 2 and 3: 1 apart, 1/3 of the larger. 8 and 4: 4 apart, half of the larger.
  const Comparison found = compare(floats({1, 2, 8, 5}), floats({1, 3, 4, 5}), {});
  EXPECT_EQ(found.differing, 2);
  EXPECT_EQ(found.max_abs, 4.0);
  EXPECT_EQ(found.max_rel, 0.5);
  EXPECT_EQ(found.first, 1);
  // One power of two apart are 2^23 numbers of float32, and 2 to 3 is half of that.
  EXPECT_EQ(found.max_ulp, std::uint64_t{1} << 23);
}

TEST(CompareTest, CountsNumbersBetween) {
  const float next = std::nextafter(1.0F, 2.0F);
  EXPECT_EQ(compare(floats({1}), floats({next}), {}).max_ulp, 1U);
  // Across zero: the smallest negative number, -0.0 = 0.0, the smallest positive one.
  const float min = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(compare(floats({-min}), floats({min}), {}).max_ulp, 2U);
  EXPECT_EQ(compare(array_of(DType::float64, std::vector<double>{1}),
                    array_of(DType::float64, std::vector<double>{std::nextafter(1.0, 0.0)}), {})
                .max_ulp,
            1U);
  // bfloat16: 1.0 is 0x3F80, and 0x3F83 is three further.
  EXPECT_EQ(compare(array_of(DType::bfloat16, std::vector<std::uint16_t>{0x3F80}),
                    array_of(DType::bfloat16, std::vector<std::uint16_t>{0x3F83}), {})
                .max_ulp,
            3U);
}

TEST(CompareTest, TolerancesAddUp) {
  const auto a = floats({10.0F, 1.0F});
  const auto b = floats({11.0F, 1.5F});
  EXPECT_EQ(compare(a, b, {}).differing, 2);
  EXPECT_EQ(compare(a, b, {.atol = 0.5}).differing, 1);
  EXPECT_EQ(compare(a, b, {.atol = 0.5}).first, 0);
  EXPECT_EQ(compare(a, b, {.atol = 0.45, .rtol = 0.05}).differing, 0);  // 0.45 + 0.05 * 11 = 1
  EXPECT_EQ(compare(a, b, {.atol = 0.45, .rtol = 0.05}).max_abs, 1.0);
}

TEST(CompareTest, NansAndZeros) {
  const auto a = floats({kNan, 0.0F});
  const auto b = floats({kNan, -0.0F});
  EXPECT_EQ(compare(a, b, {}).differing, 1);
  EXPECT_EQ(compare(a, b, {}).first, 0);
  EXPECT_EQ(compare(a, b, {.nan_equal = true}).differing, 0);
  EXPECT_EQ(compare(a, b, {.is_bitwise = true}).differing, 1);
  EXPECT_EQ(compare(a, b, {.is_bitwise = true}).first, 1);
  EXPECT_EQ(compare(floats({kNan}), floats({1}), {.nan_equal = true}).differing, 1);
}

TEST(CompareTest, InfinityIsBeyondEveryTolerance) {
  const Comparison found = compare(floats({kInf}), floats({1}), {.atol = 1e30, .rtol = 1});
  EXPECT_EQ(found.differing, 1);
  EXPECT_TRUE(std::isinf(found.max_abs));
}

// 2^53 and 2^53 + 1 are one number as double.
TEST(CompareTest, LargeWholeNumbersAreExact) {
  const std::int64_t large = std::int64_t{1} << 53;
  const Comparison found = compare(array_of(DType::int64, std::vector<std::int64_t>{large}),
                                   array_of(DType::int64, std::vector<std::int64_t>{large + 1}), {});
  EXPECT_EQ(found.differing, 1);
  EXPECT_EQ(found.max_abs, 1.0);
  EXPECT_EQ(found.max_ulp, 0U);
}

TEST(CompareTest, AComplexElementCountsOnce) {
  const Comparison found = compare(array_of(DType::complex64, std::vector<float>{0, 0, 1, 1}),
                                   array_of(DType::complex64, std::vector<float>{0, 0, 2, 2}), {});
  EXPECT_EQ(found.differing, 1);
  EXPECT_EQ(found.first, 1);
}

TEST(PositionTest, CountsInRowMajorOrder) {
  EXPECT_EQ(position_of(0, {2, 3, 4}), (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(position_of(23, {2, 3, 4}), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(position_of(0, {}), (std::vector<std::int64_t>{}));
}

}  // namespace compare_test
}  // namespace lockstep::ckpt
