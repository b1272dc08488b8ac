// SPDX-License-Identifier: BSD-3-Clause
// A request to stop ends at a step boundary, saves, returns 75 on every rank, and the run continues as if undisturbed.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "report/files/metrics.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace stop_test {

namespace fs = std::filesystem;
using testing::ProgramResult;

const std::string kData = " --data.val_size=96 --model.name=mlp --log.every=1 --ckpt.keep_best=0";
const std::string kRun = " --data.train_size=480 --train.max_steps=3000" + kData;
const std::string kEndless = " --data.train_size=48000 --train.max_steps=100000000" + kData;
/// Steps long enough to do something within one.
const std::string kSlow =
    " --data.train_size=48000 --train.max_steps=100000000 --train.global_batch_size=1920"
    " --model.hidden=8192" +
    kData;

/// Starts a command, does something to it once it has told of some steps, and waits for its end.
/// @param action  of a shell, where $job is the command's process
ProgramResult run_and_act(const std::string& command, const std::string& metrics, const std::string& action,
                          int lines = 20) {
  return testing::run_shell(command + " & job=$!; for i in $(seq 400); do [ $(cat " + metrics +
                            " 2>/dev/null | wc -l) -ge " + std::to_string(lines) + " ] && break; sleep 0.05; done; " +
                            action + "; wait $job");
}

/// A run of its own folder under mpirun.
struct TrainingRun {
  explicit TrainingRun(int rank_count) : ranks(rank_count) {}

  std::string command(const std::string& arguments, const std::string& environment = "") const {
    return testing::mpirun_command(ranks) + " " + (environment.empty() ? "" : "env " + environment + " ") +
           testing::trainer_program() + " --run.dir=" + directory + arguments;
  }
  ProgramResult act(const std::string& arguments, const std::string& action, int lines = 20) const {
    return run_and_act(command(arguments), directory + "/metrics.jsonl", action, lines);
  }
  std::vector<std::int64_t> saved() const { return checkpoints::list(directory + "/ckpt"); }
  bool has(const std::string& file) const { return fs::exists(directory + "/" + file); }
  std::string status() const { return testing::read_file(directory + "/STATUS.json"); }

  int ranks;
  testing::TemporaryFolder folder;
  std::string directory = folder.path("run");
};

/// Numbers of ranks with which a case runs: in a sample only two.
std::vector<int> rank_counts() { return testing::is_sample() ? std::vector<int>{2} : std::vector<int>{1, 2}; }

/// A shell's words: the process of one rank, of those that mpirun, $job, started.
const std::string kRank = "rank=$(tr ' ' '\\n' < /proc/$job/task/$job/children | tail -n 1); ";

TEST(StopTest, Usr2ToMpirunSavesAndReturns75) {
  for (const int ranks : rank_counts()) {
    const TrainingRun run(ranks);
    const ProgramResult stopped = run.act(kRun, "kill -USR2 $job");
    EXPECT_EQ(stopped.exit_code, 75) << stopped.output;
    ASSERT_EQ(run.saved().size(), 1U) << stopped.output;
    EXPECT_LT(run.saved()[0], 3000);
    EXPECT_NE(run.status().find("\"stopped\""), std::string::npos);

    const std::string straight = run.folder.path("straight");
    const ProgramResult resumed = testing::run_ranks(ranks, "--resume=auto --run.dir=" + run.directory + kRun);
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_EQ(testing::run_ranks(ranks, "--run.dir=" + straight + kRun).exit_code, 0);
    EXPECT_EQ(report::read_series(run.directory + "/metrics.jsonl", "loss"),
              report::read_series(straight + "/metrics.jsonl", "loss"));
  }
}

// Ctrl-C: the terminal sends INT to the whole group.
TEST(StopTest, ToolsTrainTurnsTermAndTheFirstInterruptIntoARequest) {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  for (const std::string signal : {"INT", "TERM"}) {
    if (signal != "INT" && testing::is_sample()) continue;
    const testing::TemporaryFolder folder;
    const std::string train =
        std::string(source != nullptr ? source : ".") + "/tools/train -np 2 --run.dir=" + folder.path("run") + kRun;
    // Bash without job control lets its background jobs ignore INT, so the group gets it from a shell that has it.
    const ProgramResult stopped =
        run_and_act("set -m; " + train, folder.path("run/metrics.jsonl"), "kill -" + signal + " $job");
    EXPECT_EQ(stopped.exit_code, 75) << signal << "\n" << stopped.output;
    EXPECT_EQ(checkpoints::list(folder.path("run/ckpt")).size(), 1U) << signal;
  }
}

// Slurm sends TERM and CONT twice in the same instant, and again at the end of the grace.
TEST(StopTest, SignalsToOneRankStopAllHoweverOftenTheyCome) {
  using Case = std::pair<int, const char*>;
  for (const auto& [ranks, signals] : {Case(1, "TERM CONT TERM CONT"), Case(2, "TERM CONT TERM CONT"), Case(2, "USR2"),
                                       Case(2, "XCPU"), Case(2, "INT")}) {
    const TrainingRun run(ranks);
    const std::string send = kRank + "for s in " + signals + "; do kill -$s $rank 2>/dev/null; sleep 0.001; done";
    const ProgramResult stopped = run.act(kEndless, send);
    EXPECT_EQ(stopped.exit_code, 75) << ranks << " " << signals << "\n" << stopped.output;
    EXPECT_EQ(run.saved().size(), 1U) << ranks << " " << signals;
  }
}

TEST(StopTest, WithoutALauncherTermDoesTheSame) {
  const testing::TemporaryFolder folder;
  const ProgramResult stopped = run_and_act(testing::trainer_program() + " --run.dir=" + folder.path("run") + kEndless,
                                            folder.path("run/metrics.jsonl"), "kill -TERM $job");
  EXPECT_EQ(stopped.exit_code, 75) << stopped.output;
  EXPECT_EQ(checkpoints::list(folder.path("run/ckpt")).size(), 1U);
}

TEST(StopTest, ASecondInterruptWithinFiveSecondsLeavesAtOnce) {
  for (const int ranks : rank_counts()) {
    const TrainingRun run(ranks);
    const ProgramResult left = run.act(kSlow, kRank + "kill -INT $rank; sleep 0.02; kill -INT $rank", 1);
    EXPECT_EQ(left.exit_code, 130) << left.output;
    EXPECT_NE(left.output.find("interrupted twice"), std::string::npos) << left.output;
    EXPECT_TRUE(run.saved().empty());
  }
}

TEST(StopTest, TheNextStartTakesWhatAKilledOneLeftHalfWritten) {
  const TrainingRun run(1);
  const std::string host = testing::run_shell("uname -n | tr -d '\\n'").output;
  const std::string left = run.directory + "/ckpt/.tmp-step-000000000007.999999999." + host;
  fs::create_directories(left);
  testing::write_file(left + "/state.h5", "half");
  const ProgramResult stopped = run.act(kEndless, "[ -e '" + left + "' ] && echo still there; kill -USR2 $job");
  EXPECT_EQ(stopped.exit_code, 75) << stopped.output;
  EXPECT_EQ(stopped.output.find("still there"), std::string::npos);
}

// mpirun gives the ranks a second, and returns what it likes.
TEST(StopTest, AfterTermToMpirunTheLastCheckpointCounts) {
  for (const int ranks : rank_counts()) {
    const TrainingRun run(ranks);
    const std::string arguments = kRun + " --ckpt.every=100";
    const ProgramResult ended = run.act(arguments, "kill -TERM $job", 150);
    EXPECT_NE(ended.exit_code, 0) << ended.output;
    ASSERT_FALSE(run.saved().empty()) << ended.output;
    EXPECT_LT(run.saved().back(), 3000);
    const ProgramResult resumed = testing::run_ranks(ranks, "--resume=auto --run.dir=" + run.directory + arguments);
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_EQ(run.saved().back(), 3000);
  }
}

TEST(StopTest, FileStopSavesAndReturns0) {
  for (const int ranks : rank_counts()) {
    const TrainingRun run(ranks);
    const ProgramResult ended = run.act(kEndless, "touch " + run.directory + "/STOP");
    EXPECT_EQ(ended.exit_code, 0) << ended.output;
    EXPECT_EQ(run.saved().size(), 1U);
    EXPECT_FALSE(run.has("STOP"));
    EXPECT_NE(run.status().find("\"exit_code\": 0"), std::string::npos) << run.status();
    EXPECT_NE(run.status().find("\"stopped\""), std::string::npos) << run.status();
  }
}

TEST(StopTest, FileSaveSavesAndContinues) {
  for (const int ranks : rank_counts()) {
    const TrainingRun run(ranks);
    const std::string save = run.directory + "/SAVE";
    const std::string ask = "touch " + save + "; for i in $(seq 200); do [ -e " + save +
                            " ] || break; sleep 0.05; done; ls -d " + run.directory + "/ckpt/step-*; ";
    const ProgramResult stopped = run.act(kEndless, ask + ask + "kill -USR2 $job");
    EXPECT_EQ(stopped.exit_code, 75) << stopped.output;
    EXPECT_FALSE(run.has("SAVE"));
    ASSERT_EQ(run.saved().size(), 3U) << stopped.output;
    // The file goes when its checkpoint is there: `ls` saw one, then two.
    for (const auto& [index, times] : {std::pair(0U, 2), {1U, 1}, {2U, 0}}) {
      const std::string line = "/ckpt/" + checkpoints::folder_name(run.saved()[index]) + "\n";
      int found = 0;
      for (std::size_t position = 0; (position = stopped.output.find(line, position)) != std::string::npos; ++position)
        ++found;
      EXPECT_EQ(found, times) << line << stopped.output;
    }
  }
}

TEST(StopTest, FilesFromBeforeTheStartAreRemovedAndNotFollowed) {
  const TrainingRun run(1);
  fs::create_directories(run.directory);
  for (const char* name : {"/STOP", "/SAVE"}) testing::write_file(run.directory + name, "");
  const ProgramResult done =
      testing::run_ranks(1, "--run.dir=" + run.directory + kData + " --data.train_size=480 --train.max_steps=300");
  EXPECT_EQ(done.exit_code, 0) << done.output;
  EXPECT_EQ(run.saved(), std::vector<std::int64_t>{300});
  EXPECT_FALSE(run.has("STOP"));
  EXPECT_FALSE(run.has("SAVE"));
  EXPECT_NE(done.output.find("run/STOP existed before the start"), std::string::npos) << done.output;
}

/// Seconds from a run's start to its checkpoint.
double seconds_to_checkpoint(const TrainingRun& run) {
  const std::string state = run.directory + "/ckpt/" + checkpoints::folder_name(run.saved().back()) + "/state.h5";
  return std::chrono::duration<double>(fs::last_write_time(state) - fs::last_write_time(run.directory + "/argv.txt"))
      .count();
}

TEST(StopTest, SavesBeforeTheTimeLimit) {
  for (const int ranks : rank_counts()) {
    const TrainingRun run(ranks);
    const ProgramResult stopped = testing::run_shell(run.command(kEndless + " --train.time_limit=0:00:04"));
    EXPECT_EQ(stopped.exit_code, 75) << stopped.output;
    ASSERT_EQ(run.saved().size(), 1U) << stopped.output;
    EXPECT_LT(seconds_to_checkpoint(run), 4.0);
    EXPECT_GT(seconds_to_checkpoint(run), 1.0);
  }
}

// A step that could not be saved in time is not begun.
TEST(StopTest, ReckonsWithTheLongestStepAndSave) {
  const TrainingRun run(1);
  const ProgramResult stopped = testing::run_shell(run.command(kSlow + " --ckpt.every=1 --train.time_limit=10"));
  EXPECT_EQ(stopped.exit_code, 75) << stopped.output;
  ASSERT_FALSE(run.saved().empty()) << stopped.output;
  EXPECT_LT(seconds_to_checkpoint(run), 10.0);
}

TEST(StopTest, ATimeLimitThatIsNoneIsRefused) {
  const testing::TemporaryFolder folder;
  for (const char* limit : {"soon", "0", "-5", "1:70:00"}) {
    const ProgramResult refused = testing::run_shell(testing::trainer_program() + " --run.dir=" + folder.path("run") +
                                                     " --train.time_limit=" + limit);
    EXPECT_EQ(refused.exit_code, 2) << refused.output;
    EXPECT_NE(refused.output.find("train.time_limit (command line): '" + std::string(limit) + "' is not a duration"),
              std::string::npos)
        << refused.output;
  }
}

/// Words for `env` that look like a job of slurm, which answers squeue so.
std::string slurm_like(const testing::TemporaryFolder& folder, const std::string& time_left) {
  testing::write_file(folder / "squeue", "#!/bin/bash\necho " + time_left + "\n");
  fs::permissions(folder / "squeue", fs::perms::owner_all);
  return "SLURM_JOB_ID=7 PATH=" + folder.path() + ":$PATH ";
}

TEST(StopTest, SlurmsTimeLimitCountsWhereNoneIsGiven) {
  const TrainingRun run(2);
  const std::string slurm = slurm_like(run.folder, "0:04");
  const ProgramResult stopped = testing::run_shell(run.command(kEndless, slurm));
  EXPECT_EQ(stopped.exit_code, 75) << stopped.output;
  EXPECT_EQ(run.saved().size(), 1U) << stopped.output;
  EXPECT_NE(stopped.output.find("Slurm's time limit ends this run in"), std::string::npos) << stopped.output;
  EXPECT_NE(stopped.output.find("the ranks were not started by srun"), std::string::npos) << stopped.output;

  // Here the variable comes first, and train.time_limit before that.
  const std::string few = " --data.train_size=480 --train.max_steps=20" + kData;
  const std::string end = slurm + "LOCKSTEP_SIGNALS_FORWARDED=1 SLURM_JOB_END_TIME=$(($(date +%s) + 9000))";
  const std::string other = " --run.dir=" + run.folder.path("other");
  const ProgramResult told = testing::run_shell("env " + end + " " + testing::trainer_program() + other + few);
  EXPECT_EQ(told.exit_code, 0) << told.output;
  EXPECT_NE(told.output.find("Slurm's time limit ends this run in 89"), std::string::npos) << told.output;
  EXPECT_EQ(told.output.find("the ranks were not started by srun"), std::string::npos) << told.output;
  const ProgramResult given = testing::run_shell("env " + end + " " + testing::trainer_program() + other + few +
                                                 " --train.time_limit=500 --train.max_steps=30 --resume=auto");
  EXPECT_NE(given.output.find("train.time_limit ends this run in"), std::string::npos) << given.output;
}

TEST(StopTest, AnUnknownTimeLimitIsSaidOnce) {
  const TrainingRun run(2);
  const ProgramResult done = testing::run_shell(
      run.command(" --data.train_size=480 --train.max_steps=20" + kData, slurm_like(run.folder, "INVALID")));
  EXPECT_EQ(done.exit_code, 0) << done.output;
  const std::string sentence = "the end time of Slurm job 7 is unknown";
  const std::size_t first = done.output.find(sentence);
  ASSERT_NE(first, std::string::npos) << done.output;
  EXPECT_EQ(done.output.find(sentence, first + 1), std::string::npos) << done.output;
}

TEST(StopTest, ARequeuedJobResumesUnlessReportedOtherwise) {
  const TrainingRun run(2);
  const std::string few = " --data.train_size=480 --train.max_steps=20" + kData;
  const std::string more = " --data.train_size=480 --train.max_steps=30" + kData;
  const std::string slurm = slurm_like(run.folder, "INVALID");
  ASSERT_EQ(testing::run_shell(run.command(few, slurm)).exit_code, 0);
  EXPECT_EQ(testing::run_shell(run.command(more, slurm + "SLURM_RESTART_COUNT=0")).exit_code, 2);
  EXPECT_EQ(testing::run_shell(run.command(more + " --resume=none", slurm + "SLURM_RESTART_COUNT=2")).exit_code, 2);
  const ProgramResult resumed = testing::run_shell(run.command(more, slurm + "SLURM_RESTART_COUNT=2"));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_NE(resumed.output.find("Slurm job 7, restart 2"), std::string::npos) << resumed.output;
  EXPECT_NE(resumed.output.find("resumed at step 20"), std::string::npos) << resumed.output;
}

// Whatever ended it each time: a job that slurm starts again and again from one step does not continue forever.
TEST(StopTest, AJobThatNeverGetsOnIsGivenUp) {
  const TrainingRun run(2);
  const std::string few = " --data.train_size=480 --train.max_steps=20" + kData;
  const std::string slurm = slurm_like(run.folder, "INVALID");
  fs::create_directories(run.directory + "/ckpt");
  testing::write_file(run.directory + "/ckpt/STARTS", "step 0\ncount 3\n");
  const ProgramResult given_up = testing::run_shell(run.command(few, slurm + "SLURM_RESTART_COUNT=3"));
  EXPECT_EQ(given_up.exit_code, 4) << given_up.output;
  EXPECT_NE(given_up.output.find("the last 3 starts of this job resumed from step 0"), std::string::npos)
      << given_up.output;
  EXPECT_NE(given_up.output.find("resume.max_starts"), std::string::npos) << given_up.output;
  const ProgramResult by_hand = testing::run_shell(run.command(few));
  EXPECT_EQ(by_hand.exit_code, 0) << by_hand.output;
}

}  // namespace stop_test
}  // namespace lockstep
