// SPDX-License-Identifier: BSD-3-Clause
// What is counted sample by sample: top k, confusion, overlap, likelihood, calibration, labels, probabilities.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "make_samples.hpp"
#include "metrics/numbers/classification.hpp"
#include "metrics/numbers/probability.hpp"

namespace lockstep::metrics {
namespace counting_test {

const Rows kScores = {{3, 2, 1}, {3, 1, 2}, {1, 3, 2}};

TEST(TopKTest, CountsOneTargetAmongTheBest) {
  const Samples samples = make_samples(kScores, {{0}, {1}, {2}});
  EXPECT_EQ(top_k_counts(samples, 1).accuracy(), 1.0 / 3);
  EXPECT_EQ(top_k_counts(samples, 2).accuracy(), 2.0 / 3);
  EXPECT_EQ(top_k_counts(samples, 3).accuracy(), 1);
  EXPECT_EQ(top_k_counts(samples, 2).precision(2), 2.0 / 6);
}

TEST(TopKTest, CountsSeveralTargets) {
  const Samples samples =
      make_samples({{.2, .4, .41}, {.2, .65, .15}, {.33, .32, .34}}, {{0, 1, 0}, {1, 0, 0}, {1, 1, 1}});
  EXPECT_EQ(top_k_counts(samples, 1).precision(1), 1.0 / 3);
  EXPECT_EQ(top_k_counts(samples, 1).recall(), 1.0 / 5);
  EXPECT_EQ(top_k_counts(samples, 2).precision(2), 4.0 / 6);
  EXPECT_EQ(top_k_counts(samples, 2).recall(), 4.0 / 5);
  EXPECT_EQ(top_k_counts(samples, 2).accuracy(), 1);
}

TEST(TopKTest, LeavesOutWhatIsIgnored) {
  const TopKCounts counts = top_k_counts(make_samples(kScores, {{0}, {-100}, {-100}}), 1);
  EXPECT_EQ(counts.samples, 1);
  EXPECT_EQ(counts.accuracy(), 1);
}

TEST(TopKTest, OfNothingIsZero) {
  EXPECT_EQ(TopKCounts().accuracy(), 0);
  EXPECT_EQ(TopKCounts().precision(5), 0);
  EXPECT_EQ(TopKCounts().recall(), 0);
}

// A score that is not a number finds nothing.
TEST(TopKTest, NanIsNeverAmongTheBest) {
  const double nan = std::nan("");
  EXPECT_EQ(top_k_counts(make_samples({{nan, 1, 2}}, {{0}}), 2).found, 0);
}

TEST(ConfusionTest, CountsTargetsByRows) {
  std::vector<std::int64_t> counts(9);
  count_confusion(make_samples(kScores, {{0}, {1}, {1}}), 3, kIgnored, counts);
  count_confusion(make_samples({{2}, {0}, {1}}, {{1}, {7}, {-100}}), 3, 7, counts);  // predicted classes
  EXPECT_EQ(counts, (std::vector<std::int64_t>{1, 0, 0, 1, 1, 1, 0, 0, 0}));
  const Confusion confusion(counts, 3);
  EXPECT_EQ(confusion.total(), 4);
  EXPECT_EQ(confusion.correct(), 2);
  EXPECT_EQ(confusion.support(1), 3);
  EXPECT_EQ(confusion.predicted(0), 2);
}

// Cohen's own kind of table: 0.7 agreed, 0.5 by chance.
TEST(ConfusionTest, AgreementBeyondChance) {
  const Confusion confusion(std::vector<std::int64_t>{20, 5, 10, 15}, 2);
  EXPECT_NEAR(cohen_kappa(confusion), 0.4, 1e-15);
  EXPECT_NEAR(matthews(confusion), (20.0 * 15 - 5 * 10) / std::sqrt(30.0 * 20 * 25 * 25), 1e-15);
  EXPECT_EQ(balanced_accuracy(confusion), (0.8 + 0.6) / 2);
  EXPECT_TRUE(std::isnan(cohen_kappa(Confusion(std::vector<std::int64_t>{3, 0, 0, 0}, 2))));
  EXPECT_EQ(matthews(Confusion(std::vector<std::int64_t>{3, 0, 0, 0}, 2)), 0);
}

TEST(PrecisionRecallTest, FollowsItsFormulas) {
  const PrecisionRecall ratios = precision_recall({.true_positives = 2, .predicted = 4, .support = 8});
  EXPECT_EQ(ratios.precision, 0.5);
  EXPECT_EQ(ratios.recall, 0.25);
  EXPECT_EQ(ratios.f_score, 2 * 0.5 * 0.25 / 0.75);
  EXPECT_EQ(precision_recall(ClassCounts{}).f_score, 0);
}

TEST(PrecisionRecallTest, AveragesClasses) {
  const std::vector<ClassCounts> classes = {{1, 2, 1}, {3, 3, 4}};
  EXPECT_EQ(precision_recall(classes, Averaging::macro).precision, (0.5 + 1) / 2);
  EXPECT_EQ(precision_recall(classes, Averaging::weighted).precision, (1 * 0.5 + 4 * 1) / 5);
  EXPECT_EQ(precision_recall(classes, Averaging::micro).precision, 4.0 / 5);
  EXPECT_THROW(averaging_of("mean"), std::invalid_argument);
}

TEST(OverlapTest, LeavesAbsentClassesOut) {
  const Overlap result = overlap(Confusion(std::vector<std::int64_t>{2, 1, 0, 1, 4, 0, 0, 0, 0}, 3));
  EXPECT_EQ(result.iou[0], 0.5);
  EXPECT_EQ(result.iou[1], 4.0 / 6);
  EXPECT_TRUE(std::isnan(result.iou[2]));
  EXPECT_EQ(result.miou, (0.5 + 4.0 / 6) / 2);
  EXPECT_EQ(result.aacc, 6.0 / 8);
  EXPECT_EQ(result.dice[0], 4.0 / 6);
  EXPECT_TRUE(std::isnan(overlap(Confusion(std::vector<std::int64_t>(4), 2)).miou));
}

// Equal scores of C classes are as perplexing as C.
TEST(LikelihoodTest, OfGuessingIsTheNumberOfClasses) {
  Likelihood likelihood;
  EXPECT_TRUE(std::isnan(likelihood.perplexity()));
  likelihood.add(make_samples({{7, 7, 7, 7}, {0, 0, 0, 0}, {1, 1, 1, 1}}, {{3}, {0}, {-100}}));
  EXPECT_EQ(likelihood.count(), 2);
  EXPECT_NEAR(likelihood.perplexity(), 4, 1e-14);
  EXPECT_NEAR(likelihood.bits_per_token(), 2, 1e-14);
}

TEST(LikelihoodTest, MeansRunOverTargetsNotOverBatches) {
  const double log3 = std::log(3.0);
  Likelihood likelihood;
  likelihood.add(make_samples({{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, {{0}, {1}, {2}}));
  likelihood.add(make_samples({{1000, 0, 0}}, {{0}}));
  EXPECT_NEAR(likelihood.cross_entropy(), 3 * log3 / 4, 1e-15);
}

// Sure to 1 in both, right in one: of the bin's two samples half are, as far from 1 as can be said.
TEST(CalibrationTest, ComparesConfidenceToAccuracy) {
  Calibration calibration(10);
  EXPECT_TRUE(std::isnan(calibration.expected_error()));
  calibration.add(make_samples({{900, 0}, {900, 0}}, {{0}, {1}}));
  EXPECT_EQ(calibration.expected_error(), 0.5);
  calibration.add(make_samples({{0, 0}, {0, 0}}, {{0}, {1}}));  // sure to a half, and half are right
  EXPECT_EQ(calibration.expected_error(), 0.25);
  calibration.add(make_samples({{std::nan(""), 0}}, {{0}}));
  EXPECT_TRUE(std::isnan(calibration.expected_error()));
}

TEST(MultilabelTest, CountsLabelsByThemselves) {
  Multilabel labels(2);
  EXPECT_EQ(labels.subset_accuracy(), 0);
  EXPECT_EQ(labels.hamming_loss(), 0);
  labels.add(make_samples({{.9, .5}, {.1, .8}, {.7, .2}}, {{1, 1}, {0, 0}, {-1, 0}}), 0.5);
  EXPECT_EQ(labels.subset_accuracy(), 2.0 / 3);
  EXPECT_EQ(labels.hamming_loss(), 1.0 / 5);
  EXPECT_EQ(precision_recall(labels.classes(), Averaging::micro).precision, 2.0 / 3);
  EXPECT_EQ(labels.over_samples().recall, 1.0 / 3);  // only the first has labels to find
}

TEST(ProbabilityTest, FollowsItsFormulas) {
  ProbabilityScores scores;
  EXPECT_TRUE(std::isnan(scores.brier()));
  scores.add(make_samples({{0.5}, {0.25}, {0.9}}, {{1}, {0}, {-1}}));
  EXPECT_EQ(scores.brier(), (0.25 + 0.0625) / 2);
  EXPECT_NEAR(scores.log_loss(), (std::log(2) + std::log(4.0 / 3)) / 2, 1e-15);
  ProbabilityScores sure;
  sure.add(make_samples({{0}}, {{1}}));
  EXPECT_NEAR(sure.log_loss(), -std::log(1e-6), 1e-14);
}

struct Misuse {
  const char* what;
  void (*call)();
  const char* says;
};

TEST(CountingTest, MisuseIsRefusedInASentence) {
  static std::vector<std::int64_t> counts(9);
  const std::vector<Misuse> cases = {
      {"k of 0",
       [] {
         top_k_counts(make_samples(kScores, {{0}, {1}, {2}}), 0);
       },
       "the best 0 of 3 classes"},
      {"k above C",
       [] {
         top_k_counts(make_samples(kScores, {{0}, {1}, {2}}), 4);
       },
       "the best 4 of 3 classes"},
      {"class too high",
       [] {
         top_k_counts(make_samples({{1, 2, 3}}, {{3}}), 1);
       },
       "class 3 is out of range: there are 3 classes"},
      {"label of 2",
       [] {
         top_k_counts(make_samples({{1, 2, 3}}, {{1, 2, 0}}), 1);
       },
       "label 2"},
      {"-1 (not counted)",
       [] {
         top_k_counts(make_samples({{1, 2, 3}}, {{1, -1, 0}}), 1);
       },
       "-1 (not counted) is not supported"},
      {"half a class",
       [] {
         count_confusion(make_samples({{1, 2, 3}}, {{0.5}}), 3, kIgnored, counts);
       },
       "class 0.5"},
      {"too few scores",
       [] {
         count_confusion(make_samples({{1, 2}}, {{0}}), 3, kIgnored, counts);
       },
       "not 2 outputs"},
      {"ignored prediction", [] { count_confusion(make_samples({{-100}}, {{0}}), 3, kIgnored, counts); }, "-100"},
      {"likelihood of two",
       [] {
         Likelihood().add(make_samples({{1, 2}}, {{0, 1}}));
       },
       "not 2"},
      {"calibration of two",
       [] {
         Calibration(3).add(make_samples({{1, 2}}, {{0, 1}}));
       },
       "not 2"},
      {"labels of others",
       [] {
         Multilabel(3).add(make_samples({{1, 2}}, {{0, 1}}), 0.5);
       },
       "3 classes need"},
      {"probability of 2", [] { ProbabilityScores().add(make_samples({{2}}, {{1}})); }, "the probability is 2"},
      {"probabilities of others",
       [] {
         ProbabilityScores().add(make_samples({{.2, .8}}, {{1}}));
       },
       "2 outputs"},
  };
  for (const Misuse& one : cases) {
    try {
      one.call();
      ADD_FAILURE() << one.what << " is not refused";
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find(one.says), std::string::npos) << one.what << ": " << error.what();
    }
  }
}

}  // namespace counting_test
}  // namespace lockstep::metrics
