// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/metrics/meter.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace lockstep::metrics {
namespace exact_sum_test {

constexpr double kLargest = std::numeric_limits<double>::max();
constexpr double kSmallest = std::numeric_limits<double>::denorm_min();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kTwo53 = 9007199254740992.0;

double sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  return sum.value();
}

TEST(ExactSumTest, RoundsOnlyOnce) {
  EXPECT_EQ(sum_of({}), 0);
  EXPECT_EQ(sum_of({-0.0}), 0);
  EXPECT_EQ(sum_of({1e16, 1, -1e16}), 1);  // the sum in doubles: 0
  EXPECT_EQ(sum_of({1e300, 1e-300, -1e300}), 1e-300);
  EXPECT_EQ(sum_of({kLargest, kLargest, -kLargest}), kLargest);
  EXPECT_EQ(sum_of({kLargest, kSmallest, -kLargest}), kSmallest);
  EXPECT_EQ(sum_of({kSmallest, kSmallest, kSmallest}), 3 * kSmallest);
  EXPECT_EQ(sum_of({-1, -2, -4}), -7);
  EXPECT_EQ(sum_of({kLargest, kLargest}), kInfinity);
}

// Above 2^53 every second integer is a double.
TEST(ExactSumTest, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(sum_of({kTwo53, 1}), kTwo53);
  EXPECT_EQ(sum_of({kTwo53, 1, kSmallest}), kTwo53 + 2);
  EXPECT_EQ(sum_of({kTwo53, 1, -kSmallest}), kTwo53);
  EXPECT_EQ(sum_of({kTwo53 + 2, 1}), kTwo53 + 4);
  EXPECT_EQ(sum_of({-kTwo53, -1, -kSmallest}), -kTwo53 - 2);
  EXPECT_EQ(sum_of({2 * kTwo53 - 2, 1}), 2 * kTwo53);
}

TEST(ExactSumTest, GivesBackEveryDoubleThatCameAlone) {
  for (double value = kSmallest; value < kInfinity; value *= 1.75) {
    EXPECT_EQ(sum_of({value}), value);
    EXPECT_EQ(sum_of({-value}), -value);
    if (value > kLargest / 2) break;
  }
}

// Whole multiples of 2^-40 below 2^20 add up in 64 bits without rounding.
TEST(ExactSumTest, IsTheSumInWholeNumbersInAnyOrder) {
  std::mt19937_64 random(7);
  std::vector<double> values;
  std::int64_t whole = 0;
  for (int i = 0; i < 5000; ++i) {
    const auto part = static_cast<std::int64_t>(random() >> 11) - (std::int64_t{1} << 52);
    whole += part / 4096;
    values.push_back(std::ldexp(static_cast<double>(part / 4096), -40));
  }
  const double expected = std::ldexp(static_cast<double>(whole), -40);
  EXPECT_EQ(sum_of(values), expected);
  std::shuffle(values.begin(), values.end(), random);
  EXPECT_EQ(sum_of(values), expected);
}

TEST(ExactSumTest, WordsOfPartsAddUpToThoseOfTheWhole) {
  std::vector<std::int64_t> words(ExactSum::kWords);
  std::vector<std::int64_t> part(ExactSum::kWords);
  ExactSum whole;
  for (const double value : {1e200, -3.0, 0.1, -1e200, 1e-200, -0.7, 1e9}) {
    ExactSum one;
    one.add(value);
    one.store(part);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] += part[i];
    whole.add(value);
  }
  EXPECT_EQ(ExactSum(words).value(), whole.value());
  std::vector<std::int64_t> stored(ExactSum::kWords);
  std::vector<std::int64_t> restored(ExactSum::kWords);
  whole.store(stored);
  ExactSum(words).store(restored);
  EXPECT_EQ(restored, stored);  // one spelling for one sum
}

TEST(ExactSumTest, KeepsWhatIsNotANumber) {
  EXPECT_EQ(sum_of({1, kInfinity}), kInfinity);
  EXPECT_EQ(sum_of({-kInfinity, kLargest}), -kInfinity);
  EXPECT_TRUE(std::isnan(sum_of({kInfinity, -kInfinity})));
  EXPECT_TRUE(std::isnan(sum_of({std::nan(""), 1})));
}

// (2^27 + 1)^2 = 2^54 + 2^28 + 1 needs 55 bits.
TEST(ExactSumTest, ProductsAreExact) {
  ExactSum sum;
  const double root = 134217729;
  sum.add_product(root, root);
  sum.add(-18014398777917440.0);
  EXPECT_EQ(sum.value(), 1);
}

TEST(ExactSumTest, APairHoldsWhatRoundingLeaves) {
  ExactSum sum;
  sum.add(1e20);
  sum.add(1e-20);
  EXPECT_EQ(sum.pair().high, 1e20);
  EXPECT_EQ(sum.pair().low, 1e-20);
}

TEST(ExactSumTest, WantsItsNumberOfWords) {
  EXPECT_THROW(ExactSum(std::vector<std::int64_t>(3)), std::invalid_argument);
}

}  // namespace exact_sum_test
}  // namespace lockstep::metrics
