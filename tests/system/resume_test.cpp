// SPDX-License-Identifier: BSD-3-Clause
// 50 steps, stop, resume, 50 steps is bit for bit 100 steps: parameters, optimizer, and every logged loss.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "checkpoints/store/store.hpp"
#include "report/files/metrics.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace resume_test {

using testing::ProgramResult;
using testing::run_ranks;

const std::string kSmall =
    " --data.train_size=480 --data.val_size=96 --model.channels=4,8 --model.hidden=16 --log.every=1";

/// Paths of what differs between two stored checkpoints, "" when nothing does.
std::string differences(const std::string& a, const std::string& b) {
  return testing::differences(checkpoints::read(a), checkpoints::read(b));
}

struct Case {
  std::string name;
  int ranks;
  int stop_at;  // 480 samples at 48: an epoch is 10 steps
  std::string options;
};

class ResumeTest : public ::testing::TestWithParam<Case> {};

TEST_P(ResumeTest, ContinuesBitForBit) {
  const Case& c = GetParam();
  const testing::TemporaryFolder folder;
  const std::string straight = folder.path("straight");
  const std::string halves = folder.path("halves");
  const std::string common = kSmall + " " + c.options;

  const ProgramResult whole = run_ranks(c.ranks, "train --run.dir=" + straight + common + " --train.max_steps=100");
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  const std::string total = " --train.max_steps=100";
  const ProgramResult first =
      run_ranks(c.ranks, "train --run.dir=" + halves + common + " --train.max_steps=" + std::to_string(c.stop_at));
  ASSERT_EQ(first.exit_code, 0) << first.output;
  const std::string midway = halves + "/ckpt/" + checkpoints::folder_name(c.stop_at);
  const std::string end = "/ckpt/" + checkpoints::folder_name(100);
  EXPECT_NE(differences(midway, straight + end), "");  // the comparison can fail
  const ProgramResult second = run_ranks(c.ranks, "train --resume=auto --run.dir=" + halves + common + total);
  ASSERT_EQ(second.exit_code, 0) << second.output;
  EXPECT_NE(second.output.find("resumed at step " + std::to_string(c.stop_at)), std::string::npos) << second.output;

  EXPECT_EQ(differences(halves + end, straight + end), "");
  const auto losses = report::read_series(straight + "/metrics.jsonl", "loss");
  EXPECT_EQ(losses.size(), 100U);
  EXPECT_EQ(report::read_series(halves + "/metrics.jsonl", "loss"), losses);
  EXPECT_EQ(report::read_series(halves + "/metrics.jsonl", "val/loss").back(),
            report::read_series(straight + "/metrics.jsonl", "val/loss").back());
}

const std::string kAdamW = "--optim.name=adamw --optim.lr=0.002 --model.dropout=0.1";
const std::string kSgd = "--optim.name=sgd --optim.lr=0.02 --optim.momentum=0.9 --train.clip_norm=1.0";
// Learns from fewer iterations than there are in a few steps, so that a checkpoint holds a history that went round.
const std::string kLbfgs =
    "--optim.name=lbfgs --optim.lr=1 --optim.max_iter=2 --optim.history_size=7 --optim.line_search_fn=strong_wolfe "
    "--model.dropout=0.1 --train.micro_batch=20";

INSTANTIATE_TEST_SUITE_P(
    Cases, ResumeTest,
    ::testing::Values(Case{"OneRankAtAnEpochsEnd", 1, 50, kSgd}, Case{"OneRankInsideAnEpoch", 1, 53, kAdamW},
                      Case{"TwoRanksAtAnEpochsEnd", 2, 50, kAdamW}, Case{"TwoRanksInsideAnEpoch", 2, 53, kSgd},
                      Case{"TwoRanksPrivateParameters", 2, 47, kAdamW + " --ddp.shared_parameters=false"},
                      Case{"OneRankLbfgs", 1, 53, kLbfgs}, Case{"TwoRanksLbfgs", 2, 47, kLbfgs},
                      Case{"TwoRanksClassBalanced", 2, 53, kAdamW + " --data.sampler=class_balanced"},
                      Case{"TwoRanksOverMpi", 2, 51, kSgd + " --comm.backend=mpi --train.micro_batch=7"}),
    [](const auto& test) { return test.param.name; });

// The position is counted in samples and the order depends on (seed, epoch) alone: another number of ranks continues
// with the same samples, so the losses agree to rounding.
TEST(ResumeElsewhereTest, AnotherNumberOfRanksContinuesInTheSameOrder) {
  const testing::TemporaryFolder folder;
  const std::string common = kSmall + " --train.precision=fp64 ";
  const std::string straight = folder.path("straight");
  const std::string moved = folder.path("moved");
  ASSERT_EQ(run_ranks(2, "--run.dir=" + straight + common + "--train.max_steps=30").exit_code, 0);
  ASSERT_EQ(run_ranks(2, "--run.dir=" + moved + common + "--train.max_steps=13").exit_code, 0);
  const ProgramResult resumed = run_ranks(3, "--resume=auto --run.dir=" + moved + common + "--train.max_steps=30");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  const auto expected = report::read_series(straight + "/metrics.jsonl", "loss");
  const auto losses = report::read_series(moved + "/metrics.jsonl", "loss");
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i].second, expected[i].second, 1e-10 * expected[i].second) << i;
  }
}

TEST(ResumeElsewhereTest, WithLanesAnyNumberOfRanksContinuesBitForBit) {
  const testing::TemporaryFolder folder;
  const std::string common = kSmall + " --train.lanes=8 --train.clip_norm=1.0 --model.dropout=0.1 --ema.kind=swa ";
  const std::string straight = folder.path("straight");
  const std::string moved = folder.path("moved");
  ASSERT_EQ(run_ranks(1, "--run.dir=" + straight + common + "--train.max_steps=30").exit_code, 0);
  ASSERT_EQ(run_ranks(2, "--run.dir=" + moved + common + "--train.max_steps=9").exit_code, 0);
  ASSERT_EQ(run_ranks(3, "--resume=must --run.dir=" + moved + common + "--train.max_steps=17").exit_code, 0);
  ASSERT_EQ(run_ranks(1, "--resume=must --run.dir=" + moved + common + "--train.max_steps=30").exit_code, 0);
  const std::string end = "/ckpt/" + checkpoints::folder_name(30);
  EXPECT_EQ(differences(moved + end, straight + end), "");
  for (const char* series : {"loss", "grad_norm"}) {
    const auto expected = report::read_series(straight + "/metrics.jsonl", series);
    EXPECT_EQ(expected.size(), 30U) << series;
    EXPECT_EQ(report::read_series(moved + "/metrics.jsonl", series), expected) << series;
  }
  EXPECT_EQ(report::read_series(moved + "/metrics.jsonl", "val/loss").back(),
            report::read_series(straight + "/metrics.jsonl", "val/loss").back());
}

// Lanes change only the rounding of sums without dropout and batch norm.
TEST(ResumeElsewhereTest, WithLanesARunContinuesWithoutThemAndBack) {
  const testing::TemporaryFolder folder;
  const std::string common = kSmall + " --train.precision=fp64 ";
  const std::string straight = folder.path("straight");
  const std::string changed = folder.path("changed");
  ASSERT_EQ(run_ranks(2, "--run.dir=" + straight + common + "--train.max_steps=18").exit_code, 0);
  ASSERT_EQ(run_ranks(2, "--run.dir=" + changed + common + "--train.lanes=8 --train.max_steps=6").exit_code, 0);
  const std::string resume = "--resume=must --run.dir=" + changed + common;
  const ProgramResult without = run_ranks(2, resume + "--train.max_steps=12");
  EXPECT_EQ(without.exit_code, 0) << without.output;
  EXPECT_NE(without.output.find("statistical, because train.lanes is 0 and was 8"), std::string::npos);
  const ProgramResult back = run_ranks(2, resume + "--train.lanes=8 --train.max_steps=18");
  EXPECT_EQ(back.exit_code, 0) << back.output;
  const auto expected = report::read_series(straight + "/metrics.jsonl", "loss");
  const auto losses = report::read_series(changed + "/metrics.jsonl", "loss");
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i].second, expected[i].second, 1e-10 * expected[i].second) << i;
  }
}

TEST(ResumeChoiceTest, AStepOrAPathNamesTheCheckpoint) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.path("run");
  const std::string common = kSmall + " --train.max_steps=9";
  ASSERT_EQ(run_ranks(1, "--run.dir=" + run + common + " --ckpt.every=3").exit_code, 0);
  EXPECT_EQ(checkpoints::list(run + "/ckpt"), (std::vector<std::int64_t>{3, 6, 9}));
  const ProgramResult by_step = run_ranks(1, "--run.dir=" + run + common + " --resume=6");
  EXPECT_EQ(by_step.exit_code, 0) << by_step.output;
  EXPECT_NE(by_step.output.find("resumed at step 6"), std::string::npos) << by_step.output;
  const std::string path = run + "/ckpt/" + checkpoints::folder_name(3);
  const ProgramResult by_path = run_ranks(1, "--run.dir=" + folder.path("other") + common + " --resume=" + path);
  EXPECT_EQ(by_path.exit_code, 0) << by_path.output;
  EXPECT_NE(by_path.output.find("resumed at step 3"), std::string::npos) << by_path.output;
}

TEST(ResumeChoiceTest, DataOfTheUserStayWithTheRun) {
  const testing::TemporaryFolder folder;
  const std::string run = "--run.dir=" + folder.path("run") + kSmall;
  const auto extra = [&](std::int64_t step) {
    const checkpoints::Archive archive = checkpoints::read(checkpoints::checkpoint_of(folder.path("run/ckpt"), step));
    std::map<std::string, std::string> texts;
    for (const auto& [name, value] : archive.attributes_of("/extra")) texts[name] = std::get<std::string>(value);
    return texts;
  };
  const ProgramResult first = run_ranks(2, run + " --train.max_steps=3 --run.extra=ticket=12 --run.extra=note=a=b");
  ASSERT_EQ(first.exit_code, 0) << first.output;
  EXPECT_EQ(extra(3), (std::map<std::string, std::string>{{"note", "a=b"}, {"ticket", "12"}}));
  const ProgramResult second = run_ranks(2, run + " --train.max_steps=6 --resume=auto --run.extra=ticket=13");
  ASSERT_EQ(second.exit_code, 0) << second.output;
  EXPECT_EQ(extra(6), (std::map<std::string, std::string>{{"note", "a=b"}, {"ticket", "13"}}));
  for (const char* const bad : {"x", "=1", "a/b=1"}) {
    const ProgramResult refused = run_ranks(2, run + " --resume=auto --run.extra=" + std::string(bad));
    EXPECT_EQ(refused.exit_code, 2) << refused.output;
    EXPECT_NE(refused.output.find("is not NAME=VALUE"), std::string::npos) << refused.output;
  }
}

// 144 samples of an epoch of 480 are done. With batches of 64, two steps of the epoch count, and 16 samples are
// repeated.
TEST(ResumeChoiceTest, AnotherBatchSizeContinuesInTheEpoch) {
  const testing::TemporaryFolder folder;
  const std::string run = " --run.dir=" + (folder / "run") + kSmall;
  ASSERT_EQ(run_ranks(2, "train" + run + " --train.max_steps=3").exit_code, 0);
  const ProgramResult resumed =
      run_ranks(2, "train" + run + " --train.max_steps=9 --resume=must --train.global_batch_size=64");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  for (const char* const words : {"sample 144 of its epoch, which is not a multiple of train.global_batch_size = 64: "
                                  "the last 16 of these samples "
                                  "are repeated",
                                  "reproducibility: statistical, because train.global_batch_size differs"}) {
    EXPECT_NE(resumed.output.find(words), std::string::npos) << words << resumed.output;
  }
  const checkpoints::Archive end = checkpoints::read(folder / "run/ckpt/step-000000000009");
  EXPECT_EQ(end.integer("/", "epoch"), 1);  // 2 + 5 steps of 64 end the first epoch of 7
  EXPECT_EQ(end.integer("/sampler", "samples_in_epoch"), 64);
}

TEST(ResumeChoiceTest, OtherSettingsAreStated) {
  const testing::TemporaryFolder folder;
  const std::string run = " --run.dir=" + (folder / "run") + kSmall;
  ASSERT_EQ(run_ranks(1, "train" + run + " --train.max_steps=2").exit_code, 0);
  const auto resumed = [&](const std::string& arguments) {
    return run_ranks(1, "train" + run + " --resume=2 " + arguments).output;
  };
  EXPECT_NE(resumed("--train.max_steps=3 --log.every=1").find("reproducibility: bitwise"), std::string::npos);
  EXPECT_NE(resumed("--train.max_steps=3 --optim.lr=0.5")
                .find("reproducibility: statistical, because optim.lr is 0.5 and was "),
            std::string::npos);
  EXPECT_NE(resumed("--train.max_steps=3 --train.micro_batch=5")
                .find("reproducibility: order, because train.micro_batch is 5 and was "),
            std::string::npos);
}

TEST(ResumeChoiceTest, ACheckpointCanOmitOptimizerAndSchedule) {
  const testing::TemporaryFolder folder;
  const std::string run = " --run.dir=" + (folder / "run") + kSmall + " --ckpt.save_optimizer=false" +
                          " --ckpt.save_schedule=false --ckpt.every=2 --ckpt.begin=5 --ckpt.keep_last=9" +
                          " --ckpt.keep_best=0 --sched.rule=cosine";
  ASSERT_EQ(run_ranks(2, "train" + run + " --train.max_steps=9").exit_code, 0);
  EXPECT_EQ(checkpoints::list(folder / "run/ckpt"), (std::vector<std::int64_t>{6, 8, 9}));
  const checkpoints::Archive archive = checkpoints::read(folder / "run/ckpt/step-000000000009");
  EXPECT_TRUE(archive.groups_in("/optim").empty());
  const std::vector<std::string> hooks = archive.groups_in("/hooks");
  EXPECT_EQ(std::count(hooks.begin(), hooks.end(), "schedule"), 0);

  const std::string longer = "train" + run + " --train.max_steps=12 --resume=must";
  const ProgramResult refused = run_ranks(2, longer);
  EXPECT_EQ(refused.exit_code, 4) << refused.output;
  EXPECT_NE(refused.output.find("it does not contain the state of the optimizer"), std::string::npos) << refused.output;
  EXPECT_NE(refused.output.find("resume.reset=optim"), std::string::npos) << refused.output;
  const ProgramResult resumed = run_ranks(2, longer + " --resume.reset=optim");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(checkpoints::list(folder / "run/ckpt").back(), 12);
}

TEST(ResumeChoiceTest, AFinishedRunHasNothingLeftAndAnExtendedOneContinues) {
  const testing::TemporaryFolder folder;
  const std::string run = "--run.dir=" + folder.path("run") + kSmall;
  ASSERT_EQ(run_ranks(1, run + " --train.max_steps=5").exit_code, 0);
  EXPECT_EQ(run_ranks(1, run + " --train.max_steps=5 --resume=auto").exit_code, 0);
  EXPECT_EQ(run_ranks(1, run + " --train.max_steps=8 --resume=must").exit_code, 0);
  EXPECT_EQ(report::read_series(folder.path("run") + "/metrics.jsonl", "loss").size(), 8U);
}

}  // namespace resume_test
}  // namespace lockstep
