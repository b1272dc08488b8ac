// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loop/phases.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

namespace lockstep::engine {
namespace phases_test {

Phases phases_of(const std::string& pattern, std::int64_t every = 1, std::int64_t begin = 1) {
  return Phases({.pattern = {pattern, "train.phases (test)"}, .every_epochs = every, .begin_epoch = begin});
}

std::string refusal(const std::string& pattern, std::int64_t every = 1) {
  try {
    phases_of(pattern, every);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// training-loop.md 15.1, strategy.md 13.2.2: five epochs with a test phase after every second one, which ClassyVision
// counts from the first epoch and vissl from the second; and validation from the second epoch on.
TEST(PhasesTest, PlansOfTheReferenceSystems) {
  EXPECT_EQ(phases_of("", 2).plan(5), "TTtTTtTt");
  EXPECT_EQ(phases_of("train,test,train").plan(5), "TtTTtTTt");
  EXPECT_EQ(phases_of("", 1, 2).plan(3), "TTtTt");
  EXPECT_EQ(phases_of("", 1000000).plan(3), "TTTt");
}

TEST(PhasesTest, TheIntervalOfEpochsCanChange) {
  const Phases phases({.every_epochs = Intervals::parse("3,5:1", 1, ""), .begin_epoch = 1});
  EXPECT_EQ(phases.plan(7), "TTTtTTtTtTt");
}

TEST(PhasesTest, APatternIsRepeated) {
  EXPECT_EQ(phases_of("train:2,test").plan(5), "TTtTTtTt");
  EXPECT_EQ(phases_of("train,test,train:3,test").plan(9), "TtTTTtTtTTTtTt");
  EXPECT_EQ(phases_of("train:3").plan(4), "TTTTt");
}

TEST(PhasesTest, CountersFollowThePlan) {
  const Phases phases = phases_of("train:2,test");
  // T T t T T t T: before the evaluation that follows them
  const std::vector<std::int64_t> done = {0, 1, 2, 4, 5, 7};
  for (std::size_t epochs = 0; epochs < done.size(); ++epochs) {
    EXPECT_EQ(phases.done_before(static_cast<std::int64_t>(epochs)), done[epochs]) << epochs;
  }
}

TEST(PhasesTest, MistakesAreNamed) {
  EXPECT_NE(refusal("train:0").find("train.phases (test): 'train:0'"), std::string::npos);
  EXPECT_NE(refusal("train:2x"), "");
  EXPECT_NE(refusal("training").find("'training' is neither"), std::string::npos);
  EXPECT_NE(refusal("test,train").find("must start with training"), std::string::npos);
  EXPECT_NE(refusal("train,,test"), "");
  EXPECT_NE(refusal("train,test", 2).find("do not set"), std::string::npos);
  EXPECT_EQ(refusal("train,test"), "");
}

}  // namespace phases_test
}  // namespace lockstep::engine
