// SPDX-License-Identifier: BSD-3-Clause
// A request to stop ends at a step boundary, saves, returns 75 on every rank, and the run goes on as if undisturbed.
#include <lockstep/checkpoints/store.hpp>
#include <lockstep/report/metrics_reader.hpp>

#include <gtest/gtest.h>

#include <cstdlib>

#include "support/program.hpp"

namespace lockstep {
namespace {

using testing::Outcome;

const std::string kRun =
    " --data.train_size=480 --data.test_size=96 --model.name=mlp --log.interval=1 --train.max_epochs=0"
    " --train.max_steps=3000 ";

/// Starts a command, signals it once it has trained some steps, and waits for its end.
Outcome run_and_signal(const std::string& command, const std::string& metrics, const char* signal) {
  return testing::run_shell(command + " & job=$!; for i in $(seq 200); do [ $(cat " + metrics +
                            " 2>/dev/null | wc -l) -gt 20 ] && break; sleep 0.05; done; kill -" + signal +
                            " $job; wait $job");
}

TEST(StopTest, Usr2ToMpirunSavesAndReturns75) {
  for (const int ranks : {1, 2}) {
    const testing::TemporaryFolder folder;
    const std::string run = " --run.dir=" + folder.path("run") + kRun;
    const Outcome stopped = run_and_signal(testing::mpirun_command(ranks) + " " + testing::trainer_program() + run,
                                           folder.path("run/metrics.jsonl"), "USR2");
    EXPECT_EQ(stopped.exit_code, 75) << stopped.output;
    const auto steps = checkpoints::list(folder.path("run/ckpt"));
    ASSERT_EQ(steps.size(), 1U) << stopped.output;
    EXPECT_LT(steps[0], 3000);
    EXPECT_NE(testing::read_file(folder / "run/STATUS.json").find("\"stopped\""), std::string::npos);

    const Outcome resumed = testing::run_ranks(ranks, "--resume=auto" + run);
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_EQ(testing::run_ranks(ranks, "--run.dir=" + folder.path("straight") + kRun).exit_code, 0);
    EXPECT_EQ(report::read_series(folder.path("run/metrics.jsonl"), "loss"),
              report::read_series(folder.path("straight/metrics.jsonl"), "loss"));
  }
}

// What Ctrl-C does: the terminal sends INT to the whole group.
TEST(StopTest, ToolsTrainTurnsTermAndTheFirstInterruptIntoARequest) {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  for (const char* signal : {"TERM", "INT"}) {
    const testing::TemporaryFolder folder;
    const std::string train =
        std::string(source != nullptr ? source : ".") + "/tools/train -np 2 --run.dir=" + folder.path("run") + kRun;
    // Without job control bash lets its background jobs ignore INT, so the group gets it from a shell that has it.
    const Outcome stopped = run_and_signal("set -m; " + train, folder.path("run/metrics.jsonl"), signal);
    EXPECT_EQ(stopped.exit_code, 75) << signal << "\n" << stopped.output;
    EXPECT_EQ(checkpoints::list(folder.path("run/ckpt")).size(), 1U) << signal;
  }
}

TEST(StopTest, TermToOneRankStopsAll) {
  const testing::TemporaryFolder folder;
  const std::string run = " --run.dir=" + folder.path("run") + kRun;
  const Outcome stopped = run_and_signal(testing::trainer_program() + run, folder.path("run/metrics.jsonl"), "TERM");
  EXPECT_EQ(stopped.exit_code, 75) << stopped.output;
  EXPECT_EQ(checkpoints::list(folder.path("run/ckpt")).size(), 1U);
}

}  // namespace
}  // namespace lockstep
