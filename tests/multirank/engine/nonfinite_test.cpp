// SPDX-License-Identifier: BSD-3-Clause
// What train.nonfinite makes of a sample that is not finite.
#include <lockstep/core/error.hpp>
#include <lockstep/engine/stateful.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "changed_digits.hpp"
#include "checkpoints/store/store.hpp"
#include "small_run.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace nonfinite_test {

// Two epochs of four steps: the bad sample is in one step of each.
const Settings kEightSteps = {{"data.name", "poisoned"},
                              {"data.train_size", "48"},
                              {"data.val_size", "8"},
                              {"model.name", "mlp"},
                              {"model.hidden", "8"},
                              {"train.max_epochs", "2"},
                              {"train.global_batch_size", "12"},
                              {"optim.name", "adamw"},
                              {"optim.lr", "0.01"}};

/// Parameters before and after every step, and which steps were skipped.
struct Seen {
  std::vector<std::vector<at::Tensor>> parameters;  // the first before any step
  std::vector<std::int64_t> skipped;
  std::vector<std::int64_t> starts;  // steps at which the run began, and to which it went back
  std::vector<std::int64_t> epochs;  // steps at which before_epoch was called
  std::vector<std::int64_t> loaded;  // numbers of steps of the state, each time that it was restored
  int roll_backs = 0;
  Outcome outcome = Outcome::failed;
};

class SeeingHook : public Hook {
 public:
  explicit SeeingHook(Seen& seen)
      : Hook({}, {hook_state(
                     "seeing", [this](auto& archive, const std::string& group) { archive.set(group, "steps", steps_); },
                     [this](const auto& archive, const std::string& group) {
                       steps_ = archive.integer(group, "steps");
                       seen_->loaded.push_back(steps_);
                     })}),
        seen_(&seen) {}
  void before_train(RunView& view) override { note(view); }
  void before_epoch(RunView& view) override {
    seen_->epochs.push_back(view.progress.step);
    seen_->roll_backs = view.roll_backs;
  }
  void after_step(RunView& view, const StepReport& report) override {
    ++steps_;
    seen_->parameters.resize(static_cast<std::size_t>(report.progress.step));
    note(view);
    if (report.is_skipped) seen_->skipped.push_back(report.progress.step);
  }

 private:
  void note(RunView& view) const {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& p : view.wrapper.model().parameters()) copies.push_back(p.detach().clone());
    seen_->parameters.push_back(std::move(copies));
  }

  Seen* seen_;
  std::int64_t steps_ = 0;
};

/// Makes an element of a parameter NaN after a step, as an update with such a gradient does.
class SpoilingHook : public Hook {
 public:
  explicit SpoilingHook(std::int64_t step) : step_(step) {}
  void after_step(RunView& view, const StepReport& report) override {
    const torch::NoGradGuard no_grad;
    if (report.progress.step == step_) view.wrapper.model().parameters().back()[0] = std::nanf("");
  }

 private:
  std::int64_t step_;
};

bool are_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

class NonfiniteTest : public ::testing::Test {
 protected:
  ~NonfiniteTest() override { world_.barrier(); }

  Seen run(int times, const Settings& settings) {
    const Registry registry = poisoned_registry(times);
    const Sections sections = sections_of(with(kEightSteps, settings), registry);
    Seen seen;
    TrainRequest request = quiet_request(sections, registry,
                                         world_.broadcast(folder_.path()) + "/" + std::to_string(++runs_), seen.starts);
    request.hooks.emplace_back(Priority::normal, std::make_unique<SeeingHook>(seen));
    if (spoiled_step_ > 0) request.hooks.emplace_back(Priority::normal, std::make_unique<SpoilingHook>(spoiled_step_));
    seen.outcome = train(world_, std::move(request));
    return seen;
  }

  std::string error_of(int times, const Settings& settings) {
    try {
      run(times, settings);
    } catch (const NumericError& error) {
      EXPECT_TRUE(error.is_agreed());
      return error.what();
    }
    return "";
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  testing::TemporaryFolder folder_;
  int runs_ = 0;
  std::int64_t spoiled_step_ = 0;  // the step after which a parameter is NaN
};

TEST_F(NonfiniteTest, StopsWithoutBeingReportedOtherwise) {
  EXPECT_NE(error_of(99, {}).find("the loss is not finite at step "), std::string::npos);
}

// A skipped step changes nothing, and all others train.
TEST_F(NonfiniteTest, SkipLeavesOutTheStep) {
  for (const Settings& settings : {Settings{}, Settings{{"train.clip_norm", "1.0"}}}) {
    const Seen seen = run(99, with(settings, {{"train.nonfinite", "skip"}}));
    EXPECT_EQ(seen.outcome, Outcome::done);
    ASSERT_EQ(seen.skipped.size(), 2U);
    ASSERT_EQ(seen.parameters.size(), 9U);
    for (std::size_t step = 1; step <= 8; ++step) {
      const bool is_skipped = std::count(seen.skipped.begin(), seen.skipped.end(), step) > 0;
      EXPECT_EQ(are_equal(seen.parameters[step - 1], seen.parameters[step]), is_skipped) << step;
      for (const at::Tensor& parameter : seen.parameters[step]) EXPECT_TRUE(parameter.isfinite().all().item<bool>());
    }
  }
}

// The policy changes no bit if nothing is skipped.
TEST_F(NonfiniteTest, LookingAtGradientsChangesNothing) {
  const Seen plain = run(0, {});
  for (const char* policy : {"skip", "roll_back"}) {
    const Seen seen = run(0, {{"train.nonfinite", policy}});
    EXPECT_TRUE(seen.skipped.empty());
    EXPECT_TRUE(are_equal(seen.parameters.back(), plain.parameters.back())) << policy;
  }
}

// A value that was not finite once, in a transfer for example, leaves no trace.
TEST_F(NonfiniteTest, RollBackTrainsTheStepAgain) {
  const Seen plain = run(0, {{"ckpt.every", "1"}});
  const Seen seen = run(1, {{"train.nonfinite", "roll_back"}, {"ckpt.every", "1"}});
  EXPECT_EQ(seen.outcome, Outcome::done);
  EXPECT_TRUE(seen.skipped.empty());
  EXPECT_GE(seen.starts.size(), 2U);  // once on each rank that reads the sample first
  ASSERT_EQ(seen.parameters.size(), plain.parameters.size());
  for (std::size_t step = 0; step < plain.parameters.size(); ++step) {
    EXPECT_TRUE(are_equal(seen.parameters[step], plain.parameters[step])) << step;
  }
}

// Hooks learn of it by their restored states, by RunView::roll_backs and by before_epoch.
TEST_F(NonfiniteTest, HooksContinueFromTheCheckpoint) {
  const Seen seen = run(1, {{"train.nonfinite", "roll_back"}, {"ckpt.every", "1"}});
  EXPECT_EQ(seen.roll_backs, std::ssize(seen.starts) - 1);
  EXPECT_EQ(seen.loaded, std::vector<std::int64_t>(seen.starts.begin() + 1, seen.starts.end()));
  for (const std::int64_t step : seen.starts) {
    EXPECT_NE(std::find(seen.epochs.begin(), seen.epochs.end(), step), seen.epochs.end()) << step;
  }
}

TEST_F(NonfiniteTest, WhatStaysSoIsSkippedAfterGoingBackOnce) {
  const Seen seen = run(99, {{"train.nonfinite", "roll_back"}, {"ckpt.every", "1"}});
  EXPECT_EQ(seen.outcome, Outcome::done);
  EXPECT_EQ(seen.skipped.size(), 2U);
  EXPECT_EQ(seen.starts.size(), 3U);
}

TEST_F(NonfiniteTest, WithoutACheckpointTheStepIsSkipped) {
  const Seen seen = run(99, {{"train.nonfinite", "roll_back"}, {"ckpt.keep_best", "0"}});
  EXPECT_EQ(seen.outcome, Outcome::done);
  EXPECT_EQ(seen.starts.size(), 1U);
  EXPECT_EQ(seen.skipped.size(), 2U);
  EXPECT_EQ(seen.roll_backs, 0);
  EXPECT_EQ(seen.epochs, (std::vector<std::int64_t>{0, 4}));
}

TEST_F(NonfiniteTest, GoesBackAsOftenAsAskedFor) {
  const std::string error =
      error_of(99, {{"train.nonfinite", "roll_back"}, {"train.max_roll_backs", "1"}, {"ckpt.every", "1"}});
  EXPECT_NE(error.find("already returned to a checkpoint 1 times"), std::string::npos) << error;
}

TEST_F(NonfiniteTest, RulesThatCompareLossesRefuseIt) {
  EXPECT_THROW(run(0, {{"train.nonfinite", "skip"}, {"optim.name", "lbfgs"}}), ConfigError);
}

// The loss of the next step would show it, but the checkpoint comes first.
TEST_F(NonfiniteTest, ParametersThatAreNotFiniteAreNotSaved) {
  const auto saved = [&] { return checkpoints::list(world_.broadcast(folder_.path()) + "/" + std::to_string(runs_)); };
  spoiled_step_ = 8;
  const Settings folder = {{"ckpt.every", "4"}};
  const Settings shards = with(folder, {{"ckpt.layout", "shards"}, {"ckpt.writers", "2"}});
  for (const Settings& settings : {folder, with(folder, {{"ckpt.async", "false"}}), shards}) {
    const std::string error = error_of(0, settings);
    EXPECT_NE(error.find("the parameters are not finite after step 8: /model/params/"), std::string::npos) << error;
    EXPECT_NE(error.find(" holds 1 NaN and 0 infinite elements, the first at [0]"), std::string::npos) << error;
    EXPECT_EQ(saved(), std::vector<std::int64_t>{4});
  }
  EXPECT_EQ(run(0, {{"ckpt.every", "4"}, {"resume.allow_nonfinite", "true"}}).outcome, Outcome::done);
  EXPECT_EQ(saved(), (std::vector<std::int64_t>{4, 8}));
}

}  // namespace nonfinite_test
}  // namespace lockstep::engine
