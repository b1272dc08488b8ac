// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/regression.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "make_samples.hpp"

namespace lockstep::metrics {
namespace regression_test {

using Doubles = std::vector<double>;

RegressionErrors errors_of(const Doubles& predictions, const Doubles& targets) {
  RegressionErrors errors;
  for (std::size_t i = 0; i < targets.size(); ++i) errors.add(predictions[i], targets[i]);
  return errors;
}

TEST(RegressionTest, FollowsItsFormulas) {
  const RegressionErrors errors = errors_of({2, 2, 5, 3}, {1, 2, 3, 4});
  EXPECT_EQ(errors.mse(), 6.0 / 4);
  EXPECT_EQ(errors.rmse(), std::sqrt(1.5));
  EXPECT_EQ(errors.mae(), 4.0 / 4);
  EXPECT_NEAR(errors.mape(), (1 + 0 + 2.0 / 3 + 0.25) / 4, 1e-16);
  EXPECT_EQ(errors.r2(), 1 - 6.0 / 5);
  EXPECT_NEAR(errors.explained_variance(), 1 - (6 - 4.0 / 4) / 5, 1e-15);  // errors -1, 0, -2, 1 have the mean -1/2
  EXPECT_NEAR(errors.pearson(), 3 / std::sqrt(5.0 * 6), 1e-15);
}

// Adding a constant to both changes neither errors nor correlations, however large it is: here sums are no doubles.
TEST(RegressionTest, ALargeMeanCostsNothing) {
  const double large = 2251799813685248;  // 2^51
  const RegressionErrors errors =
      errors_of({large + 2, large + 2, large + 5, large + 4}, {large + 1, large + 2, large + 3, large + 5});
  const RegressionErrors small = errors_of({2, 2, 5, 4}, {1, 2, 3, 5});
  EXPECT_EQ(small.r2(), 1 - 4 * 6.0 / 35);
  EXPECT_EQ(errors.r2(), small.r2());
  EXPECT_EQ(errors.pearson(), small.pearson());
  EXPECT_EQ(errors.explained_variance(), small.explained_variance());
}

TEST(RegressionTest, ConstantTargetsAreRightOrWrong) {
  EXPECT_EQ(errors_of({2, 2}, {2, 2}).r2(), 1);
  EXPECT_EQ(errors_of({1, 2}, {2, 2}).r2(), 0);
  EXPECT_EQ(errors_of({3, 3}, {2, 2}).explained_variance(), 1);
  EXPECT_TRUE(std::isnan(errors_of({1, 2}, {2, 2}).pearson()));
}

TEST(RegressionTest, OfTooFewIsNotANumber) {
  EXPECT_TRUE(std::isnan(RegressionErrors().mse()));
  EXPECT_TRUE(std::isnan(RegressionErrors().r2()));
  EXPECT_TRUE(std::isnan(errors_of({1}, {1}).r2()));
  EXPECT_EQ(errors_of({1}, {3}).mae(), 2);
  EXPECT_TRUE(std::isnan(median_absolute_error({}, {})));
  EXPECT_TRUE(std::isnan(max_error({}, {})));
  EXPECT_TRUE(std::isnan(spearman({}, {})));
}

TEST(RegressionTest, WhatIsNotANumberShows) {
  const double nan = std::nan("");
  const RegressionErrors errors = errors_of({1, nan}, {1, 2});
  EXPECT_TRUE(std::isnan(errors.mse()));
  EXPECT_TRUE(std::isnan(errors.r2()));
  EXPECT_TRUE(std::isnan(errors.pearson()));
  EXPECT_TRUE(std::isnan(max_error(Doubles{1, nan}, Doubles{1, 2})));
  EXPECT_TRUE(std::isnan(spearman(Doubles{1, nan}, Doubles{1, 2})));
  EXPECT_EQ(errors_of({1, std::numeric_limits<double>::infinity()}, {1, 2}).mae(),
            std::numeric_limits<double>::infinity());
}

TEST(RegressionTest, OrderOfErrors) {
  EXPECT_EQ(median_absolute_error(Doubles{1, 5, 9}, Doubles{0, 0, 0}), 5);
  EXPECT_EQ(median_absolute_error(Doubles{1, -5, 9, 3}, Doubles{0, 0, 0, 0}), 4);
  EXPECT_EQ(max_error(Doubles{1, -5, 2}, Doubles{0, 0, 0}), 5);
}

// 1 - 6 sum d^2 / (n^3 - n) without ties, here with d = 1, -1, 2, -1, -1.
TEST(RegressionTest, SpearmanComparesRanks) {
  EXPECT_NEAR(spearman(Doubles{20, 10, 500, 30, 40}, Doubles{1, 2, 3, 4, 5}), 1 - 6 * 8.0 / 120, 1e-15);
  EXPECT_EQ(spearman(Doubles{1, 8, 27}, Doubles{1, 2, 3}), 1);
  EXPECT_EQ(spearman(Doubles{3, 2, 1}, Doubles{1, 2, 3}), -1);
  // Ranks 1.5, 1.5, 3 against 1, 2, 3: covariance 1.5, variances 1.5 and 2.
  EXPECT_NEAR(spearman(Doubles{7, 7, 9}, Doubles{1, 2, 3}), 1.5 / std::sqrt(1.5 * 2), 1e-15);
}

TEST(RegressionTest, AnOutputCanHaveManyPoints) {
  std::vector<RegressionErrors> errors(2);
  add_errors(make_samples({{1, 3, 10, 10}}, {{2, 5, 10, 14}}), errors);
  EXPECT_EQ(errors[0].mae(), 1.5);
  EXPECT_EQ(errors[1].mae(), 2);
  EXPECT_THROW(add_errors(make_samples({{1, 2, 3}}, {{1, 2, 3}}), errors), DataError);
}

TEST(RegressionTest, EachOutputHasItsErrors) {
  std::vector<RegressionErrors> errors(2);
  add_errors(make_samples({{1, 10}, {2, 20}}, {{1, 11}, {4, 20}}), errors);
  EXPECT_EQ(errors[0].mae(), 1);
  EXPECT_EQ(errors[1].mae(), 0.5);
  EXPECT_THROW(add_errors(make_samples({{1}}, {{1}}), errors), DataError);
  EXPECT_THROW(add_errors(make_samples({{1, 2}}, {{1}}), errors), DataError);
}

}  // namespace regression_test
}  // namespace lockstep::metrics
