// SPDX-License-Identifier: BSD-3-Clause
// Schedules in a run: what they set, and what they learn from evaluations and keep.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <memory>

#include "engine/resume/run_state.hpp"
#include "small_run.hpp"

namespace lockstep::engine {
namespace schedule_test {

using checkpoints::Archive;

const Settings kBase = {{"model.name", "mlp"},    {"model.hidden", "8"}, {"data.train_size", "100"},
                        {"optim.name", "adamw"},  {"optim.lr", "0.01"},  {"train.global_batch_size", "12"},
                        {"train.max_steps", "10"}};
const Settings kPlateau = {{"sched.rule", "plateau,patience=1,factor=0.5"}};

/// Measures a loss of 1 after every step.
class MeasuringHook : public Hook {
 public:
  void after_step(RunView& view, const StepReport&) override {
    view.report({.kind = "eval", .values = {{"val/loss", 1.0}}});
  }
};

struct MeasuredRun : SmallRun {
  MeasuredRun(const mpi::Communicator& world, const Settings& settings) : SmallRun(world, with(kBase, settings)) {
    trainer.add_hook(Priority::normal, std::make_unique<MeasuringHook>());
  }
  const optim::Options& options() { return updates.first().optimizer().groups().front().options; }
};

class ScheduleTest : public ::testing::Test {
 protected:
  mpi::Communicator world_ = mpi::Communicator::world();
};

TEST_F(ScheduleTest, RulesSetAnyOption) {
  const Settings rules = {{"sched.rule", "constant,factor=0.5,of=momentum"},
                          {"sched.rule", "step,size=4,gamma=0.5"},
                          {"sched.rule", "linear,of=weight_decay,base=0.5,start_factor=0,end=9"}};
  MeasuredRun run(world_, with({{"optim.weight_decay", "0.1"}}, rules));
  run.trainer.train();
  EXPECT_EQ(run.options().at("beta1"), 0.45);
  EXPECT_EQ(run.options().at("lr"), 0.01 * 0.25);
  EXPECT_EQ(run.options().at("weight_decay"), 0.5);
}

TEST_F(ScheduleTest, RefusesAnOptionThatTheOptimizerDoesNotHave) {
  MeasuredRun run(world_, {{"sched.rule", "constant,of=momentun"}});
  EXPECT_THROW(run.trainer.train(), ConfigError);
  MeasuredRun other(world_, {{"sched.rule", "constant,group=decay"}});
  EXPECT_THROW(other.trainer.train(), ConfigError);  // there is one group, "all"
}

// The best loss comes after step 1, and drops after steps 3, 5, 7 and 9.
TEST_F(ScheduleTest, APlateauLearnsFromEvaluations) {
  MeasuredRun run(world_, kPlateau);
  run.trainer.train();
  EXPECT_EQ(run.options().at("lr"), 0.01 / 16);
  MeasuredRun other(world_, {{"sched.rule", "plateau,metric=val/losses"}});
  EXPECT_THROW(other.trainer.train(), ConfigError);
}

TEST_F(ScheduleTest, WhatAPlateauLearnedIsResumed) {
  MeasuredRun straight(world_, kPlateau);
  straight.trainer.train();
  MeasuredRun first(world_, with(kPlateau, {{"train.max_steps", "6"}}));
  first.trainer.train();
  const Archive archive = capture(first.trainer, "", true);
  MeasuredRun resumed(world_, kPlateau);
  restore(resumed.trainer, archive);
  resumed.trainer.train();
  EXPECT_EQ(resumed.losses, std::vector<double>(straight.losses.begin() + 6, straight.losses.end()));
  EXPECT_EQ(resumed.options().at("lr"), 0.01 / 16);
}

// Drops after steps 3 and 5 are of the rule that was there: another rule begins to learn at step 6.
TEST_F(ScheduleTest, OtherRulesHoldFromTheResumedStepOn) {
  MeasuredRun first(world_, with(kPlateau, {{"train.max_steps", "6"}}));
  first.trainer.train();
  const Archive archive = capture(first.trainer, "", true);
  const Settings other = {{"sched.rule", "step,size=4,gamma=0.5"}, {"sched.rule", "plateau,patience=1,factor=0.5"}};
  MeasuredRun resumed(world_, other);
  restore(resumed.trainer, archive);
  resumed.trainer.train();
  EXPECT_EQ(resumed.options().at("lr"), 0.01 / 4 / 2);  // the plateau: best after step 7, dropped after step 9
}

}  // namespace schedule_test
}  // namespace lockstep::engine
