// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <torch/types.h>

#include "metrics/meters.hpp"

namespace lockstep::metrics {
namespace classification_test {

TEST(ClassificationTest, CountsWhatIsNotIgnored) {
  const at::Tensor scores = torch::tensor({{0.0, 1.0}, {2.0, 1.0}, {0.0, 3.0}, {5.0, 0.0}});
  EXPECT_EQ(count_answers(scores, torch::tensor({1L, 1L, -100L, 0L})), (Answers{.correct = 2, .count = 3}));
  EXPECT_EQ(count_answers(scores.view({2, 2, 2}), torch::tensor({{1L, 1L}, {-100L, 1L}})),
            (Answers{.correct = 1, .count = 3}));
}

TEST(ClassificationTest, AnIgnoredBatchAddsNothing) {
  EXPECT_EQ(count_answers(torch::zeros({2, 3}), torch::tensor({-100L, -100L})), Answers{});
}

TEST(ClassificationTest, OtherTargetsAreNoClasses) {
  EXPECT_FALSE(count_answers(torch::zeros({3, 2}), torch::zeros({3, 2})));
  EXPECT_FALSE(count_answers(torch::zeros({3, 2}), torch::zeros({3})));
  EXPECT_FALSE(count_answers(torch::zeros({3, 2}), torch::zeros({2}, torch::kLong)));
}

}  // namespace classification_test
}  // namespace lockstep::metrics
