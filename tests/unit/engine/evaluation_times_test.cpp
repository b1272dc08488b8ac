// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "engine/evaluation/evaluation.hpp"

namespace lockstep::engine {
namespace evaluation_times_test {

EvalSettings settings_of(const std::string& every_epochs, const std::string& begin_epoch = "1",
                         const std::string& when = "regular") {
  Section eval = Section::with_defaults("eval", EvalSettings::keys(metrics::builtin_meters()));
  eval.set("every_epochs", every_epochs, "test");
  eval.set("begin_epoch", begin_epoch, "test");
  eval.set("when", when, "test");
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
  EXPECT_EQ(plan(settings_of("2"), 5), "TTtTTtTt");
  EXPECT_EQ(plan(settings_of("1,2:3,4:5"), 5), "TtTTtTTt");
  EXPECT_EQ(plan(settings_of("1", "2"), 3), "TTtTt");
  EXPECT_EQ(plan(settings_of("1000000"), 3), "TTTt");
}

TEST(EvaluationTimesTest, TheIntervalOfEpochsCanChange) {
  EXPECT_EQ(plan(settings_of("3,5:1"), 7), "TTTtTTtTtTt");
  EXPECT_EQ(plan(settings_of("1,2:3,4:6,7:8"), 9), "TtTTtTTTtTTtTt");
}

TEST(EvaluationTimesTest, TheEndIsAlwaysEvaluated) {
  EXPECT_EQ(plan(settings_of("3"), 4), "TTTtTt");
  EXPECT_EQ(plan(settings_of("1", "1", "end"), 3), "TTTt");
}

TEST(EvaluationTimesTest, StepsCountIfTheyHaveAnInterval) {
  EvalSettings settings = settings_of("1");
  settings.interval = 4;
  EXPECT_EQ(plan(settings, 3), "TtTtTt");  // evaluations after steps 4, 8 and 9
}

}  // namespace evaluation_times_test
}  // namespace lockstep::engine
