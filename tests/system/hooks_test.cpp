// SPDX-License-Identifier: BSD-3-Clause
// The hooks that a configuration names.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

#include "checkpoints/store/store.hpp"
#include "report/files/metrics.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace hooks_test {

using testing::ProgramResult;
using testing::run_ranks;

const std::string kSmall =
    " --data.train_size=240 --data.val_size=48 --model.name=mlp --model.hidden=16 --log.every=1 --log.tensorboard="
    "false ";

TEST(HooksTest, HelpShowsEachWithItsOptions) {
  const ProgramResult help = run_ranks(1, "--help=train.all");
  EXPECT_EQ(help.exit_code, 0);
  for (const char* const words : {"--train.hooks", "train.hooks, early_stopping: ", "train.hooks, profiler: ",
                                  "patience", "every", "from_step", "priority"}) {
    EXPECT_NE(help.output.find(words), std::string::npos) << words << "\n" << help.output;
  }
}

TEST(HooksTest, AnUnknownOneIsRefused) {
  const testing::TemporaryFolder folder;
  const ProgramResult refused = run_ranks(2, "--train.hooks=memery --run.dir=" + folder.path("run") + kSmall);
  EXPECT_EQ(refused.rank_codes, (std::vector<int>{2, 2})) << refused.output;
  EXPECT_NE(refused.output.find("'memery' is unknown"), std::string::npos) << refused.output;
  EXPECT_NE(refused.output.find("did you mean 'memory'?"), std::string::npos) << refused.output;
}

TEST(HooksTest, MeasurementsAndATraceAreInTheRunsFolder) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.path("run");
  const ProgramResult outcome = run_ranks(2,
                                          "--train.hooks=memory,every=2 --train.hooks=parameter_statistics,every=2 "
                                          "--train.hooks=profiler,from_step=1,steps=2 --train.hooks=run_time "
                                          "--train.max_steps=6 --run.dir=" +
                                              run + kSmall);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto rss = report::read_series(run + "/metrics.jsonl", "memory/rss_mb");
  ASSERT_EQ(rss.size(), 3U);
  EXPECT_EQ(rss.front().first, 2);
  EXPECT_EQ(report::read_series(run + "/metrics.jsonl", "parameters/norm").size(), 3U);
  for (const char* const words : {"memory: maximum ", "training speed: 3 steps in ", "training time: "}) {
    EXPECT_NE(outcome.output.find(words), std::string::npos) << outcome.output;
  }
  std::set<int> lanes;
  const auto trace = nlohmann::json::parse(testing::read_file(run + "/trace.json"));
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("name") == "step 3") lanes.insert(event.at("pid").get<int>());
  }
  EXPECT_EQ(lanes, (std::set<int>{0, 1}));
}

// The accuracy is never above 1, so the first evaluation is the best one: the run ends with the third of ten epochs.
const std::string kNoProgress =
    "--train.hooks=early_stopping,metric=val/accuracy,patience=2,min_delta=1 --train.max_epochs=10";

TEST(HooksTest, ARunThatEndsEarlyIsDoneAndSaved) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.path("run");
  const std::string common = kNoProgress + " --run.dir=" + run + kSmall;
  const ProgramResult outcome = run_ranks(2, common);
  EXPECT_EQ(outcome.rank_codes, (std::vector<int>{0, 0})) << outcome.output;
  EXPECT_NE(outcome.output.find("the run ends after step 15"), std::string::npos) << outcome.output;
  EXPECT_EQ(report::read_series(run + "/metrics.jsonl", "loss").size(), 15U);
  EXPECT_EQ(checkpoints::list(run + "/ckpt").back(), 15);
  const ProgramResult again = run_ranks(2, common + " --resume=must");
  EXPECT_EQ(again.exit_code, 0) << again.output;
  EXPECT_EQ(report::read_series(run + "/metrics.jsonl", "loss").size(), 15U);
}

TEST(HooksTest, AnInterruptedRunEndsAtTheSameStepWithTheSameBits) {
  const testing::TemporaryFolder folder;
  const std::string straight = folder.path("straight");
  const std::string halves = folder.path("halves");
  const std::string common = kNoProgress + " --finetune.unfreeze=hidden0@12 --optim.name=adamw" + kSmall + "--run.dir=";
  ASSERT_EQ(run_ranks(2, common + straight).exit_code, 0);
  ASSERT_EQ(run_ranks(2, common + halves + " --train.max_steps=10").exit_code, 0);
  const ProgramResult second = run_ranks(2, common + halves + " --resume=must");
  ASSERT_EQ(second.exit_code, 0) << second.output;
  const std::string end = "/ckpt/" + checkpoints::folder_name(15);
  EXPECT_EQ(testing::differences(checkpoints::read(halves + end), checkpoints::read(straight + end)), "");
  EXPECT_EQ(report::read_series(halves + "/metrics.jsonl", "loss"),
            report::read_series(straight + "/metrics.jsonl", "loss"));
}

}  // namespace hooks_test
}  // namespace lockstep
