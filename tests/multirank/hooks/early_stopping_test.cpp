// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <map>

#include "engine/resume/run_state.hpp"
#include "hooked_run.hpp"

namespace lockstep::engine {
namespace early_stopping_test {

using Values = std::map<std::int64_t, double>;  // values of val/loss, by step

/// Says what an evaluation would, and ends the run after `last` steps.
class ScriptedEvaluation : public Hook {
 public:
  ScriptedEvaluation(Values values, std::int64_t last) : values_(std::move(values)), last_(last) {}

  void before_agreement(RunView& view) override {
    if (view.progress.step + 1 == last_) view.requests.end();
  }
  void after_step(RunView& view, const StepReport& report) override {
    const auto value = values_.find(report.progress.step);
    if (value == values_.end()) return;
    const Measured measured{.step = value->first, .values = {{"val/other", 0.0}, {"val/loss", value->second}}};
    view.end_evaluation(measured);
  }

 private:
  Values values_;
  std::int64_t last_;
};

struct StoppedRun : HookedRun {
  StoppedRun(const mpi::Communicator& world, const std::string& hook, const Values& values, std::int64_t last = -1)
      : HookedRun(world, with_hook(hook)) {
    trainer.add_hook(Priority::normal, std::make_unique<ScriptedEvaluation>(values, last));
  }
};

// 3 of step 4 is the best.
const Values kFourIsBest = {{2, 5}, {4, 3}, {6, 4}, {7, 3}, {9, 3.5}, {10, 1}};

class EarlyStoppingTest : public ::testing::Test {
 protected:
  mpi::Communicator world_ = mpi::Communicator::world();
};

TEST_F(EarlyStoppingTest, TheRunIsDoneAfterTheStep) {
  StoppedRun run(world_, "early_stopping,patience=3", kFourIsBest);
  EXPECT_EQ(run.trainer.train(), Outcome::done);
  EXPECT_EQ(run.trainer.progress().step, 9);
  StoppedRun patient(world_, "early_stopping,patience=4", kFourIsBest);
  EXPECT_EQ(patient.trainer.train(), Outcome::done);
  EXPECT_EQ(patient.trainer.progress().step, 12);
}

TEST_F(EarlyStoppingTest, AnInterruptedRunEndsAtTheSameStepWithTheSameBits) {
  const std::string hook = "early_stopping,patience=3";
  StoppedRun straight(world_, hook, kFourIsBest);
  straight.trainer.train();
  for (const std::int64_t last : {3, 4, 6, 8}) {
    StoppedRun first(world_, hook, kFourIsBest, last);
    EXPECT_EQ(first.trainer.train(), Outcome::ended);
    const checkpoints::Archive archive = capture(first.trainer, "", true);
    EXPECT_EQ(archive.text("/hooks/early_stopping", "metric"), "val/loss");
    StoppedRun resumed(world_, hook, kFourIsBest);
    restore(resumed.trainer, archive);
    EXPECT_EQ(resumed.trainer.train(), Outcome::done);
    EXPECT_EQ(resumed.trainer.progress().step, 9) << last;
    EXPECT_EQ(resumed.losses, std::vector<double>(straight.losses.begin() + last, straight.losses.end())) << last;
  }
}

TEST_F(EarlyStoppingTest, ARunThatHasEndedStaysSoUnlessItIsGivenPatience) {
  StoppedRun first(world_, "early_stopping,patience=3", kFourIsBest);
  first.trainer.train();
  const checkpoints::Archive archive = capture(first.trainer, "", true);
  StoppedRun again(world_, "early_stopping,patience=3", kFourIsBest);
  restore(again.trainer, archive);
  EXPECT_EQ(again.trainer.train(), Outcome::done);
  EXPECT_TRUE(again.losses.empty());
  StoppedRun patient(world_, "early_stopping,patience=5", kFourIsBest);
  restore(patient.trainer, archive);
  EXPECT_EQ(patient.trainer.train(), Outcome::done);
  EXPECT_EQ(patient.losses.size(), 3U);
}

TEST_F(EarlyStoppingTest, AnotherMetricStartsAgain) {
  StoppedRun first(world_, "early_stopping,patience=3", kFourIsBest, 8);
  first.trainer.train();
  StoppedRun other(world_, "early_stopping,patience=3,better=higher", kFourIsBest);
  restore(other.trainer, capture(first.trainer, "", true));
  other.trainer.train();
  EXPECT_EQ(other.trainer.progress().step, 12);  // 3.5 and 1 are not enough
}

TEST_F(EarlyStoppingTest, TwoOfThemAreTwo) {
  HookedRun run(world_, with(with_hook("early_stopping,patience=3"), {{"train.hooks", "early_stopping,patience=1"}}));
  run.trainer.add_hook(Priority::normal, std::make_unique<ScriptedEvaluation>(kFourIsBest, -1));
  run.trainer.train();
  EXPECT_EQ(run.trainer.progress().step, 6);
  const checkpoints::Archive archive = capture(run.trainer, "", true);
  EXPECT_EQ(archive.integer("/hooks/early_stopping", "waited"), 1);
  EXPECT_EQ(archive.integer("/hooks/early_stopping#2", "waited"), 1);
}

TEST_F(EarlyStoppingTest, AMetricThatIsNotMeasuredIsAnErrorOrAWarning) {
  const auto run = [&](const std::string& hook) { StoppedRun(world_, hook, kFourIsBest).trainer.train(); };
  EXPECT_EQ(agreed_error_of<ConfigError>(world_, [&] { run("early_stopping,metric=val/accuracy"); }),
            "early_stopping: metric 'val/accuracy' is not an evaluation metric; the evaluation computes: val/other, "
            "val/loss");
  EXPECT_EQ(agreed_error_of<ConfigError>(world_, [&] { run("early_stopping,metric=val/accuracy,strict=false"); }), "");
  EXPECT_EQ(agreed_error_of<ConfigError>(world_, [&] { run("early_stopping,metric=loss"); }), "");
}

}  // namespace early_stopping_test
}  // namespace lockstep::engine
