// SPDX-License-Identifier: BSD-3-Clause
#include "engine/resume/run_state.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "checkpoints/store/store.hpp"
#include "small_run.hpp"
#include "support/program.hpp"

namespace lockstep::engine {
namespace run_state_test {

const Settings kBase = {{"model.name", "mlp"},   {"model.hidden", "16"}, {"data.train_size", "100"},
                        {"optim.name", "adamw"}, {"optim.lr", "0.01"},   {"train.global_batch_size", "12"},
                        {"train.max_steps", "5"}};

/// Writes what `trainer` holds, then reads it on every rank, as a run does.
checkpoints::Archive through_a_file(Trainer& trainer, const std::string& folder) {
  const mpi::Communicator& world = trainer.view().world;
  const checkpoints::Archive archive = capture(trainer, "", trainer.view().world.is_root());
  if (world.is_root()) checkpoints::write(folder, trainer.progress().step, archive);
  world.barrier();
  return checkpoints::read(folder + "/" + checkpoints::folder_name(trainer.progress().step));
}

bool has_same_parameters(SmallRun& a, SmallRun& b) {
  const auto left = a.model.wrapper->model().parameters();
  const auto right = b.model.wrapper->model().parameters();
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (!at::equal(left[i], right[i])) return false;
  }
  return true;
}

class RunStateTest : public ::testing::Test {
 protected:
  RunStateTest() {
    std::string path = world_.broadcast(folder_.path());
    shared_ = path;
  }
  ~RunStateTest() override { world_.barrier(); }

  mpi::Communicator world_ = mpi::Communicator::world();
  testing::TemporaryFolder folder_;
  std::string shared_;  // rank 0's folder
};

TEST_F(RunStateTest, ARestoredRunContinuesBitForBit) {
  SmallRun first(world_, kBase);
  first.trainer.train();
  const checkpoints::Archive archive = through_a_file(first.trainer, shared_);

  const Settings longer = with(kBase, {{"train.max_steps", "20"}});
  SmallRun straight(world_, longer);
  straight.trainer.train();
  SmallRun resumed(world_, longer);
  EXPECT_FALSE(has_same_parameters(first, resumed));  // it starts elsewhere ...
  restore(resumed.trainer, archive);
  EXPECT_TRUE(has_same_parameters(first, resumed));  // ... and is put here
  EXPECT_EQ(resumed.trainer.progress().step, 5);
  EXPECT_EQ(resumed.trainer.progress().samples, 60);
  resumed.trainer.train();
  EXPECT_TRUE(has_same_parameters(straight, resumed));
  const std::vector<double> tail(straight.losses.begin() + 5, straight.losses.end());
  EXPECT_EQ(resumed.losses, tail);
}

// All that writes parameters lawfully: initial values, updates, restoring. And nobody writes in an evaluation.
TEST_F(RunStateTest, CheckedWritesAndReportsChangeNoBit) {
  const Settings watched = {{"ddp.check_writes", "true"}, {"ddp.report", "true"}, {"train.clip_norm", "1"}};
  const Settings longer = {{"train.max_steps", "12"}, {"train.clip_norm", "1"}};
  SmallRun plain(world_, with(kBase, longer));
  plain.trainer.train();
  SmallRun first(world_, with(kBase, watched));
  first.trainer.train();
  const checkpoints::Archive archive = through_a_file(first.trainer, shared_);
  SmallRun resumed(world_, with(with(kBase, watched), longer));
  parallel::DdpReport report;
  resumed.trainer.add_hook(ddp_report_hook([&report](const auto& given) { report = given; }));
  restore(resumed.trainer, archive);
  resumed.trainer.train();
  EXPECT_TRUE(has_same_parameters(plain, resumed));
  EXPECT_EQ(evaluate(resumed, *resumed.splits.val, 100).mean_loss(),
            evaluate(plain, *plain.splits.val, 100).mean_loss());
  // Rank 0 is told; of 7 steps the first 3 do not count.
  EXPECT_EQ(report.ranks.size(), static_cast<std::size_t>(world_.is_root() ? world_.size() : 0));
  EXPECT_EQ(report.steps, world_.is_root() && world_.size() > 1 ? 4 : 0);
}

TEST_F(RunStateTest, WhatDoesNotFitIsListedOnEveryRankAndNothingChanges) {
  SmallRun saved(world_, kBase);
  const checkpoints::Archive archive = through_a_file(saved.trainer, shared_);
  const auto refusal = [&](const Settings& changes) {
    SmallRun other(world_, with(kBase, changes));
    const at::Tensor before = other.model.wrapper->model().parameters()[0].clone();
    std::string text;
    try {
      restore(other.trainer, archive);
    } catch (const CheckpointError& error) {
      EXPECT_TRUE(error.is_agreed());
      text = error.what();
    }
    EXPECT_TRUE(at::equal(before, other.model.wrapper->model().parameters()[0]));
    return text;
  };
  const std::string shapes = refusal({{"model.hidden", "17"}});
  EXPECT_NE(shapes.find("/model/params/hidden0.weight is float32 [16, 784], the run has float32 [17, 784]"),
            std::string::npos)
      << shapes;
  EXPECT_NE(refusal({{"model.hidden", "16,16"}}).find("/model/params/hidden1.weight is missing"), std::string::npos);
  EXPECT_NE(refusal({{"model.hidden", ""}}).find("hidden0.weight is not in the model of the run"), std::string::npos);
  EXPECT_NE(refusal({{"train.precision", "fp64"}}).find("float64"), std::string::npos);
  EXPECT_NE(refusal({{"optim.name", "sgd"}}).find("its optimizer is adamw, the run's is sgd"), std::string::npos);
  EXPECT_NE(refusal({{"data.train_size", "99"}}).find("trained on 100 samples"), std::string::npos);
  EXPECT_NE(refusal({{"data.seed", "5"}}).find("different data of the same length"), std::string::npos);
  EXPECT_NE(refusal({{"run.seed", "5"}}).find("its run.seed is 1"), std::string::npos);
}

TEST_F(RunStateTest, APositionInsideAGlobalBatchRepeatsItsSamples) {
  SmallRun first(world_, kBase);
  first.trainer.train();  // 60 samples into the epoch
  const checkpoints::Archive archive = through_a_file(first.trainer, shared_);
  SmallRun other(world_, with(kBase, {{"train.global_batch_size", "16"}}));
  restore(other.trainer, archive);
  EXPECT_EQ(other.trainer.progress().step_in_epoch, 3);  // steps of 16 samples each: 12 of the 60 are repeated
  EXPECT_EQ(reproducibility_of(other.trainer, archive).text(), "statistical, because train.global_batch_size differs");
  SmallRun half(world_, with(kBase, {{"train.global_batch_size", "6"}}));
  restore(half.trainer, archive);
  EXPECT_EQ(half.trainer.progress().step_in_epoch, 10);
}

}  // namespace run_state_test
}  // namespace lockstep::engine
