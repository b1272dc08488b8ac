// SPDX-License-Identifier: BSD-3-Clause
// The checkpoints of the best evaluations are saved and stay.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>

#include "engine/resume/resume.hpp"
#include "engine/saving/best_values.hpp"
#include "engine/saving/checkpoint_saver.hpp"
#include "small_run.hpp"
#include "support/program.hpp"

namespace lockstep::engine {
namespace best_test {

namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;
using Values = std::map<std::int64_t, double>;

const Settings kBase =
    with(kTwelveSteps, {{"ckpt.every", "never"}, {"ckpt.keep_last", "1"}, {"ckpt.verify_every", "0"}});

/// Says what an evaluation would.
class ScriptedEvaluation : public Hook {
 public:
  explicit ScriptedEvaluation(Values values) : values_(std::move(values)) {}
  void after_step(RunView& view, const StepReport& report) override {
    const auto value = values_.find(report.progress.step);
    if (value == values_.end()) return;
    view.report(
        {.kind = "eval", .values = {{"step", report.progress.step}, {"val/other", 0.0}, {"val/loss", value->second}}});
  }

 private:
  Values values_;
};

class BestTest : public ::testing::Test {
 protected:
  BestTest() { directory_ = world_.broadcast(folder_.path()) + "/ckpt"; }
  ~BestTest() override { world_.barrier(); }

  /// Trains on, with these evaluations; then tells which checkpoints there are.
  Steps train(const Values& values, const Settings& settings = {}) {
    SmallRun run(world_, with(with(kBase, {{"resume", "auto"}}), settings));
    run.trainer.add_hook(Priority::normal, std::make_unique<ScriptedEvaluation>(values));
    run.trainer.add_hook(run.checkpoint_hook(directory_, "config"));
    load_or_resume(run, directory_);
    run.trainer.train();
    world_.barrier();
    const Steps steps = checkpoints::list(directory_);
    world_.barrier();
    return steps;
  }

  checkpoints::Archive at(std::int64_t step) const {
    return checkpoints::read(checkpoints::checkpoint_of(directory_, step));
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  testing::TemporaryFolder folder_;
  std::string directory_;  // directory on rank 0's disk
};

// 4 is the best, 8 is as good, 10 is no number.
const Values kFourIsBest = {{2, 5}, {4, 3}, {6, 4}, {8, 3}, {10, std::nan("")}, {12, 3.5}};

TEST_F(BestTest, TheBestIsSavedAndStays) { EXPECT_EQ(train(kFourIsBest), (Steps{4, 12})); }

TEST_F(BestTest, ItStaysWhenEveryStepIsSaved) {
  EXPECT_EQ(train(kFourIsBest, {{"ckpt.every", "1"}, {"ckpt.keep_last", "2"}}), (Steps{4, 11, 12}));
}

TEST_F(BestTest, SeveralMayStay) { EXPECT_EQ(train(kFourIsBest, {{"ckpt.keep_best", "2"}}), (Steps{4, 8, 12})); }

TEST_F(BestTest, NoneStaysWhereNoneIsWanted) {
  EXPECT_EQ(train(kFourIsBest, {{"ckpt.keep_best", "0"}}), (Steps{12}));
  EXPECT_FALSE(at(12).has_attribute("/hooks/best", "metric"));
}

TEST_F(BestTest, TheGreatestIsBestByItsRule) {
  EXPECT_EQ(train({{2, 1}, {4, 7}, {6, 7}, {8, 2}}, {{"ckpt.better", "higher"}}), (Steps{4, 12}));
}

// A rollout that overflows has infinite numbers.
TEST_F(BestTest, AnInfiniteValueIsNeverTheBest) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(train({{2, infinity}, {4, 3}, {6, infinity}}, {{"ckpt.better", "higher"}}), (Steps{4, 12}));
}

TEST_F(BestTest, ACheckpointKnowsTheBestUpToItsOwnStep) {
  train(kFourIsBest, {{"ckpt.keep_best", "2"}});
  const checkpoints::Archive fourth = at(4);
  EXPECT_EQ(fourth.text("/hooks/best", "metric"), "val/loss");
  EXPECT_EQ(fourth.text("/hooks/best", "rule"), "less");
  EXPECT_EQ(fourth.real("/hooks/best/0", "value"), 3);
  EXPECT_EQ(fourth.integer("/hooks/best/0", "step"), 4);
  EXPECT_EQ(fourth.integer("/hooks/best/1", "step"), 2);
  EXPECT_EQ(at(12).integer("/hooks/best/1", "step"), 8);
}

TEST_F(BestTest, AResumedRunContinuesComparing) {
  EXPECT_EQ(train({{2, 3}, {4, 5}}, {{"train.max_steps", "5"}}), (Steps{2, 5}));
  EXPECT_EQ(train({{6, 4}, {7, 3}}, {{"train.max_steps", "8"}}), (Steps{2, 5, 8}));  // 5: there are no two newer ones
  EXPECT_EQ(train({{10, 2}}, {{"train.max_steps", "12"}}), (Steps{10, 12}));
}

TEST_F(BestTest, AnotherMetricStartsAgain) {
  EXPECT_EQ(train({{2, 3}}, {{"train.max_steps", "5"}}), (Steps{2, 5}));
  EXPECT_EQ(train({{6, 9}, {7, 10}}, {{"train.max_steps", "8"}, {"ckpt.better", "higher"}}), (Steps{7, 8}));
}

TEST_F(BestTest, AWrongNameIsRefused) {
  const auto error_of = [&](const Settings& settings) -> std::string {
    try {
      train(kFourIsBest, settings);
      return "";
    } catch (const ConfigError& error) {
      EXPECT_TRUE(error.is_agreed() || world_.size() == 1);
      return error.what();
    }
  };
  EXPECT_NE(error_of({{"ckpt.metric", "recall"}}).find("does not determine whether lower or higher"),
            std::string::npos);
  EXPECT_EQ(error_of({{"ckpt.metric", "val/acc"}}),
            "ckpt.metric: 'val/acc' is not an evaluation metric; the evaluation computes: val/other, val/loss");
  EXPECT_EQ(error_of({{"ckpt.metric", "loss"}}), "");
}

// A file in the folder's place stands for a disk that is full.
TEST_F(BestTest, TheOldBestStaysUntilTheNewOneIsSaved) {
  const auto capture_nothing = [] { return checkpoints::Archive(); };
  CheckpointSaver saver(world_, {.directory = directory_, .retention = {.keep_last = 1}});
  const auto save = [&](std::int64_t step) {
    saver.save(step, false, capture_nothing);
    while (saver.is_busy()) saver.poll();
  };
  const auto swap = [&](const std::string& from, const std::string& target) {
    world_.barrier();
    if (world_.is_root() && fs::is_regular_file(target)) fs::remove(target);
    if (world_.is_root()) fs::rename(from, target);
    if (world_.is_root() && target.ends_with(".away")) testing::write_file(from, "in the way");
    world_.barrier();
  };
  saver.keep_best({1});
  save(1);
  save(2);
  saver.keep_best({3});
  swap(directory_, directory_ + ".away");
  save(3);
  swap(directory_ + ".away", directory_);
  EXPECT_EQ(saver.saved_step(), 2);
  save(4);
  save(5);
  world_.barrier();
  EXPECT_EQ(checkpoints::list(directory_), (Steps{1, 5}));
  world_.barrier();
  saver.keep_best({6});
  save(6);
  save(7);
  world_.barrier();
  EXPECT_EQ(checkpoints::list(directory_), (Steps{6, 7}));
}

}  // namespace best_test
}  // namespace lockstep::engine
