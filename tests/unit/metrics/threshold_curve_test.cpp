// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "make_samples.hpp"
#include "metrics/numbers/curves.hpp"

namespace lockstep::metrics {
namespace threshold_curve_test {

using Doubles = std::vector<double>;

/// The share of all pairs of a positive and a negative the part in which the positive scores higher; ties count half.
double by_pairs(const Doubles& scores, const Doubles& labels) {
  double won = 0;
  double pairs = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    for (std::size_t j = 0; j < scores.size(); ++j) {
      if (labels[i] != 1 || labels[j] != 0) continue;
      ++pairs;
      won += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
    }
  }
  return won / pairs;
}

// Mann and Whitney: the area is the probability that a positive scores higher.
TEST(ThresholdCurveTest, AreaIsTheShareOfOrderedPairs) {
  std::mt19937 random(3);
  for (int run = 0; run < 50; ++run) {
    Doubles scores;
    Doubles labels = {0, 1};
    for (int i = 0; i < 20; ++i) scores.push_back(static_cast<double>(random() % 7));  // many ties
    while (labels.size() < scores.size()) labels.push_back(static_cast<double>(random() % 3) - 1);
    EXPECT_EQ(auroc(threshold_curve(scores, labels)), by_pairs(scores, labels));
  }
}

TEST(ThresholdCurveTest, EdgesOfTheArea) {
  EXPECT_EQ(auroc(threshold_curve(Doubles{3, 2, 1}, Doubles{1, 0, 0})), 1);
  EXPECT_EQ(auroc(threshold_curve(Doubles{1, 2, 3}, Doubles{1, 0, 0})), 0);
  EXPECT_EQ(auroc(threshold_curve(Doubles{1, 1, 1}, Doubles{1, 0, 0})), 0.5);
  EXPECT_TRUE(std::isnan(auroc(threshold_curve(Doubles{1, 2}, Doubles{1, 1}))));
  EXPECT_TRUE(std::isnan(auroc(threshold_curve(Doubles{1, 2}, Doubles{0, -1}))));
  EXPECT_TRUE(std::isnan(auroc(threshold_curve(Doubles{}, Doubles{}))));
  EXPECT_TRUE(std::isnan(auroc(threshold_curve(Doubles{std::nan(""), 1}, Doubles{1, 0}))));
  EXPECT_EQ(auroc(threshold_curve(Doubles{std::nan(""), 2, 1}, Doubles{-1, 1, 0})), 1);  // not counted
}

// Found at places 2, 3 and 5 of 5: precisions 1/2, 2/3 and 3/5.
TEST(ThresholdCurveTest, AveragePrecisionOfSmallLists) {
  const ThresholdCurve curve = threshold_curve(Doubles{.9, .8, .7, .6, .5}, Doubles{0, 1, 1, 0, 1});
  EXPECT_NEAR(average_precision(curve), (1.0 / 2 + 2.0 / 3 + 3.0 / 5) / 3, 1e-15);
  EXPECT_NEAR(interpolated_average_precision(curve), (2.0 / 3 + 2.0 / 3 + 3.0 / 5) / 3, 1e-15);
  const ThresholdCurve without_positives = threshold_curve(Doubles{.9, .8}, Doubles{0, 0});
  EXPECT_TRUE(std::isnan(average_precision(without_positives)));
  EXPECT_TRUE(std::isnan(interpolated_average_precision(without_positives)));
}

TEST(ThresholdCurveTest, RefusesWhatIsNoLabel) {
  EXPECT_THROW(threshold_curve(Doubles{1, 2}, Doubles{1}), std::invalid_argument);
  EXPECT_THROW(threshold_curve(Doubles{1, 2}, Doubles{1, 2}), DataError);
}

TEST(ClassCurvesTest, OneClassAgainstTheRest) {
  const Samples samples = make_samples({{3, 0, 0}, {2, 1, 0}, {0, 2, 0}, {9, 9, 9}}, {{0}, {1}, {1}, {-100}});
  const auto curves = class_curves(samples);
  ASSERT_EQ(curves.size(), 3U);
  EXPECT_EQ(curves[1].positives, 2);
  EXPECT_EQ(curves[1].negatives, 1);
  EXPECT_EQ(mean_auroc(curves, Averaging::macro), 1);
  EXPECT_EQ(one_vs_one_auroc(samples), 1);
  const MeanOfClasses precision = mean_average_precision(curves);
  EXPECT_TRUE(std::isnan(precision.classes[2]));  // never asked
  EXPECT_EQ(precision.mean, 1);
}

TEST(ClassCurvesTest, ClassesWeighTheSameOrBySupport) {
  // Class 1 is always found, class 0 scores its two samples below one and above none of the two others.
  const Samples samples = make_samples({{1, 0}, {2, 0}, {3, 5}, {1.5, 5}}, {{1, 0}, {1, 0}, {0, 1}, {0, 0}});
  const auto curves = class_curves(samples);
  const double first = 1.0 / 4;
  const double second = 2.5 / 3;
  EXPECT_EQ(mean_auroc(curves, Averaging::macro), (first + second) / 2);
  EXPECT_EQ(mean_auroc(curves, Averaging::weighted), (2 * first + second) / 3);
}

TEST(ClassCurvesTest, OfNothingAreNotNumbers) {
  EXPECT_TRUE(std::isnan(mean_auroc(class_curves({}), Averaging::macro)));
  EXPECT_TRUE(std::isnan(mean_average_precision(class_curves({})).mean));
  EXPECT_TRUE(std::isnan(one_vs_one_auroc({})));
  EXPECT_TRUE(std::isnan(mean_auroc(class_curves(make_samples({{std::nan("")}, {1}}, {{1}, {0}})), Averaging::macro)));
}

TEST(ClassCurvesTest, RefuseTargetsThatDoNotFit) {
  EXPECT_THROW(class_curves(make_samples({{1, 2, 3}}, {{0, 1}})), DataError);
  EXPECT_THROW(class_curves(make_samples({{1, 2, 3}}, {{3}})), DataError);
  EXPECT_THROW(class_curves(make_samples({{1, 2}}, {{0, 5}})), DataError);
}

}  // namespace threshold_curve_test
}  // namespace lockstep::metrics
