// SPDX-License-Identifier: BSD-3-Clause
// Beta(a, b) has the mean a / (a + b) and the variance a b / ((a + b)^2 (a + b + 1)).
#include <lockstep/random/random.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace lockstep::random {
namespace beta_test {

constexpr int kDraws = 100'000;

std::vector<double> draws(double alpha, double beta) {
  std::vector<double> values;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    Sequence numbers(5, Stream::mixing, i);
    values.push_back(beta_variate(numbers, alpha, beta));
  }
  return values;
}

TEST(BetaTest, MomentsAreThoseOfTheDistribution) {
  const std::vector<std::pair<double, double>> shapes = {{0.2, 0.2}, {0.1, 0.1}, {0.5, 2}, {1, 1}, {2, 5}, {8, 8}};
  for (const auto& [a, b] : shapes) {
    const double mean = a / (a + b);
    const double variance = a * b / ((a + b) * (a + b) * (a + b + 1));
    double sum = 0;
    double squares = 0;
    for (const double value : draws(a, b)) {
      ASSERT_GE(value, 0) << a << " " << b;
      ASSERT_LE(value, 1) << a << " " << b;
      sum += value;
      squares += (value - mean) * (value - mean);
    }
    // Five standard deviations of the mean; squared deviations are at most 1, so theirs is below sqrt(variance).
    const double error = 5 * std::sqrt(variance / kDraws);
    EXPECT_NEAR(sum / kDraws, mean, error) << a << " " << b;
    EXPECT_NEAR(squares / kDraws, variance, error) << a << " " << b;
  }
}

/// The largest distance between the share of draws below x and the probability of x.
template <class Probability>
double distance(std::vector<double> values, const Probability& probability) {
  std::sort(values.begin(), values.end());
  double largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double expected = probability(values[i]);
    largest = std::max(largest, std::abs(static_cast<double>(i + 1) / static_cast<double>(values.size()) - expected));
    largest = std::max(largest, std::abs(static_cast<double>(i) / static_cast<double>(values.size()) - expected));
  }
  return largest;
}

// The distributions with a closed form. A larger distance has a probability of 2 exp(-2 * 1.95^2) = 0.001.
TEST(BetaTest, DrawsHaveTheDistribution) {
  const double limit = 1.95 / std::sqrt(kDraws);
  EXPECT_LT(distance(draws(1, 1), [](double x) { return x; }), limit);
  EXPECT_LT(distance(draws(0.5, 0.5), [](double x) { return 2 / M_PI * std::asin(std::sqrt(x)); }), limit);
  EXPECT_LT(distance(draws(0.2, 1), [](double x) { return std::pow(x, 0.2); }), limit);
  EXPECT_LT(distance(draws(3, 1), [](double x) { return x * x * x; }), limit);
  EXPECT_GT(distance(draws(3, 1), [](double x) { return x * x; }), limit);
}

TEST(BetaTest, TinyShapesGiveTheEnds) {
  int ends = 0;
  for (const double value : draws(1e-3, 1e-3)) {
    ASSERT_FALSE(std::isnan(value));
    if (value < 1e-6 || value > 1 - 1e-6) ++ends;
  }
  EXPECT_GT(ends, 0.97 * kDraws);  // 1 - P = about 2 * 1e-3 * ln(1e6) / 2
}

TEST(BetaTest, ADrawIsAFunctionOfItsKey) {
  for (std::uint64_t i = 0; i < 100; ++i) {
    Sequence one(1, Stream::mixing, i, 2, 1000);
    Sequence other(1, Stream::mixing, i, 2, 1000);
    EXPECT_EQ(beta_variate(one, 0.2, 0.2), beta_variate(other, 0.2, 0.2));
  }
}

}  // namespace beta_test
}  // namespace lockstep::random
