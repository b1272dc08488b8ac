// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "engine/evaluation/evaluation.hpp"

namespace lockstep::engine {
namespace evaluation_times_test {

EvalSettings settings_of(const std::string& every, const std::string& begin = "0") {
  Section eval = Section::with_defaults("eval", EvalSettings::keys(metrics::builtin_meters()));
  eval.set("every", every, "test");
  eval.set("begin", begin, "test");
  return EvalSettings::from(eval);
}

/// A run of epochs of three steps: 'T' for an epoch of training and 't' for an evaluation.
std::string plan(const EvalSettings& settings, std::int64_t epochs) {
  Progress progress{.total_steps = 3 * epochs, .steps_per_epoch = 3};
  std::string plan;
  while (progress.step < progress.total_steps) {
    progress.advance(1);
    if (progress.step_in_epoch == 0) plan += 'T';
    if (settings.is_due(progress)) plan += 't';
  }
  return plan;
}

// training-loop.md 15.1, strategy.md 13.2.2: five epochs with a test phase after every second one, which ClassyVision
// counts from the first epoch and vissl from the second; and validation from the second epoch on.
TEST(EvaluationTimesTest, PlansOfTheReferenceSystems) {
  EXPECT_EQ(plan(settings_of("2epochs"), 5), "TTtTTtTt");
  EXPECT_EQ(plan(settings_of("1epochs then 3epochs@2epochs then 5epochs@4epochs"), 5), "TtTTtTTt");
  EXPECT_EQ(plan(settings_of("1epochs", "2epochs"), 3), "TTtTt");
  EXPECT_EQ(plan(settings_of("1000000epochs"), 3), "TTTt");
}

TEST(EvaluationTimesTest, TheTimesCanChange) {
  EXPECT_EQ(plan(settings_of("3epochs then 1epochs@5epochs"), 7), "TTTtTTtTtTt");
}

TEST(EvaluationTimesTest, TheEndIsAlwaysEvaluatedUnlessNothingIs) {
  EXPECT_EQ(plan(settings_of("3epochs"), 4), "TTTtTt");
  EXPECT_EQ(plan(settings_of("3epochs+end"), 4), "TTTtTt");
  EXPECT_EQ(plan(settings_of("end"), 3), "TTTt");
  EXPECT_EQ(plan(settings_of("10min"), 3), "TTTt");
  EXPECT_EQ(plan(settings_of("1epochs", "9epochs"), 3), "TTTt");
  EXPECT_EQ(plan(settings_of("never"), 3), "TTT");
}

TEST(EvaluationTimesTest, StepsCount) {
  EXPECT_EQ(plan(settings_of("4"), 3), "TtTtTt");  // evaluations after steps 4, 8 and 9
  EXPECT_EQ(plan(settings_of("4", "5"), 3), "TTtTt");
}

}  // namespace evaluation_times_test
}  // namespace lockstep::engine
