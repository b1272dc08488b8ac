// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/classification.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

namespace lockstep::metrics {
namespace classification_test {

TEST(ClassificationTest, CountsWhatIsNotIgnored) {
  const at::Tensor logits = torch::tensor({{0.0, 1.0}, {2.0, 1.0}, {0.0, 3.0}, {5.0, 0.0}});
  const at::Tensor target = torch::tensor({1L, 1L, -100L, 0L});
  const ClassificationSums sums = classification_sums(logits, target, torch::tensor(0.5));
  EXPECT_EQ(sums.count, 3);
  EXPECT_EQ(sums.correct, 2);
  EXPECT_EQ(sums.loss, 1.5);
  EXPECT_EQ(sums.mean_loss(), 0.5);
}

TEST(ClassificationTest, AnIgnoredBatchAddsNothing) {
  const ClassificationSums sums = classification_sums(torch::zeros({2, 3}), torch::tensor({-100L, -100L}),
                                                      torch::tensor(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(sums.count, 0);
  EXPECT_EQ(sums.loss, 0.0);
}

TEST(ClassificationTest, SamplesWithOtherTargetsAreCounted) {
  const ClassificationSums sums = classification_sums(torch::zeros({3, 2}), torch::zeros({3, 2}), torch::tensor(0.5));
  EXPECT_EQ(sums.count, 3);
  EXPECT_EQ(sums.correct, 0);
  EXPECT_EQ(sums.loss, 1.5);
}

TEST(ClassificationTest, SumsOfPartsAreTheWhole) {
  const ClassificationSums whole = ClassificationSums{1.5, 2, 3} + ClassificationSums{0.5, 1, 4};
  EXPECT_EQ(whole.loss, 2.0);
  EXPECT_EQ(whole.correct, 3);
  EXPECT_EQ(whole.count, 7);
}

}  // namespace classification_test
}  // namespace lockstep::metrics
