// SPDX-License-Identifier: BSD-3-Clause
// The job scripts in a slurm of this machine's own, where slurm is installed and that is permitted.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "report/files/metrics.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace slurm_test {

using testing::ProgramResult;

constexpr int kNotPermitted = 77;
constexpr std::int64_t kSteps = 3000;

/// One epoch, so that every stop is in the middle of one.
const std::string kRun =
    " --data.train_size=432000 --data.val_size=96 --model.name=mlp --log.every=1"
    " --train.max_steps=" +
    std::to_string(kSteps);

/// The commands that run beside slurm: submits a job, sends USR2 once it has told of some steps, and says each state of
/// it. The ranks are held until the signal has come, however long slurm takes.
constexpr const char* kSubmitAndSignal = R"(#!/bin/bash
# usage: FOLDER JOB_SCRIPT OPTION_OF_SCANCEL ARGUMENT...
cd "$1" || exit
job=$(sbatch --parsable "$2" "${@:4}") || exit
for ((tries = 0; tries < 1200; ++tries)); do
  [[ $(cat run/metrics.jsonl 2>/dev/null | wc -l) -lt 20 ]] || break
  sleep 0.02
done
ranks=$(grep -lx trainer /proc/[0-9]*/comm | cut -d/ -f3)
kill -STOP $ranks
scancel $3 -s USR2 "$job"
for ((tries = 0; tries < 100; ++tries)); do
  ! grep -qsE '^ShdPnd:\s0*[1-9a-f]' $(printf '/proc/%s/status ' $ranks) || break
  sleep 0.1
done
kill -CONT $ranks
for ((tries = 0; tries < 600; ++tries)); do
  state=$(scontrol show job "$job" | grep -oE '(JobState|Restarts|ExitCode)=[A-Z0-9:]*' | xargs)
  [[ $state == "$before" ]] || echo "$state"
  before=$state
  [[ $state != *COMPLETED* && $state != *FAILED* && $state != *CANCELLED* ]] || break
  sleep 0.1
done
cat ./*.out
)";

/// The same, but kills a rank instead of sending a signal.
constexpr const char* kSubmitAndKill = R"(#!/bin/bash
# usage: FOLDER JOB_SCRIPT ARGUMENT...
cd "$1" || exit
job=$(sbatch --parsable "${@:2}") || exit
for ((tries = 0; tries < 1200; ++tries)); do
  [[ $(cat run/metrics.jsonl 2>/dev/null | wc -l) -lt 200 ]] || break
  sleep 0.02
done
for process in $(grep -lx trainer /proc/[0-9]*/comm | cut -d/ -f3); do
  ! tr '\0' '\n' </proc/$process/environ | grep -qxE '(OMPI_COMM_WORLD_RANK|PMIX_RANK)=1' || kill -KILL $process
done
for ((tries = 0; tries < 600; ++tries)); do
  state=$(scontrol show job "$job" | grep -oE '(JobState|Restarts|ExitCode)=[A-Z0-9:]*' | xargs)
  [[ $state != *COMPLETED* && $state != *FAILED* && $state != *CANCELLED* ]] || break
  sleep 0.1
done
echo "$state"
cat ./*.out
)";

std::string source_folder() {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  return source != nullptr ? source : ".";
}

/// Runs a job script of tools/slurm, which is stopped by USR2 and requeues itself, in `folder`.
ProgramResult run_job(const testing::TemporaryFolder& folder, const std::string& script,
                      const std::string& scancel_option) {
  const std::string driver = folder.path("submit_and_signal");
  testing::write_file(driver, kSubmitAndSignal);
  return testing::run_shell("export LOCKSTEP_TRAINER=" + testing::trainer_program() +
                                " OMPI_MCA_rmaps_base_oversubscribe=1; " + source_folder() +
                                "/tests/system/private_slurm.sh " + folder.path("slurm") + " bash " + driver + " " +
                                folder.path() + " " + source_folder() + "/tools/slurm/" + script + " '" +
                                scancel_option + "' --run.dir=" + folder.path("run") + kRun,
                            300);
}

/// A requeued job ends with the bits of a run that nobody disturbed.
void expect_undisturbed(const testing::TemporaryFolder& folder, const ProgramResult& job) {
  EXPECT_NE(job.output.find("JobState=COMPLETED Restarts=1 ExitCode=0:0"), std::string::npos) << job.output;
  EXPECT_NE(job.output.find("Slurm's time limit ends this run in"), std::string::npos) << job.output;
  EXPECT_NE(job.output.find("Slurm job 1, restart 1"), std::string::npos) << job.output;
  EXPECT_EQ(job.output.find("the ranks were not started by srun"), std::string::npos) << job.output;
  const std::string checkpoints = folder.path("run/ckpt/");
  const auto steps = checkpoints::list(checkpoints);
  ASSERT_EQ(steps.size(), 2U) << job.output;
  EXPECT_LT(steps[0], kSteps);

  const ProgramResult straight = testing::run_ranks(2, "--run.dir=" + folder.path("straight") + kRun);
  ASSERT_EQ(straight.exit_code, 0) << straight.output;
  const auto expected = checkpoints::read(folder.path("straight/ckpt/") + checkpoints::folder_name(kSteps));
  EXPECT_EQ(testing::differences(checkpoints::read(checkpoints + checkpoints::folder_name(kSteps)), expected), "");
  EXPECT_NE(testing::differences(checkpoints::read(checkpoints + checkpoints::folder_name(steps[0])), expected), "");
  const auto losses = report::read_series(folder.path("run/metrics.jsonl"), "loss");
  EXPECT_EQ(losses.size(), static_cast<std::size_t>(kSteps));
  EXPECT_EQ(losses, report::read_series(folder.path("straight/metrics.jsonl"), "loss"));
}

TEST(SlurmTest, AJobOfSrunThatUsr2StopsRequeuesItselfAndEndsAsIfUndisturbed) {
  const testing::TemporaryFolder folder;
  const ProgramResult job = run_job(folder, "train.sbatch", "");
  if (job.exit_code == kNotPermitted) GTEST_SKIP() << job.output;
  expect_undisturbed(folder, job);
}

TEST(SlurmTest, AJobOfMpirunDoesTheSame) {
  const testing::TemporaryFolder folder;
  const ProgramResult job = run_job(folder, "train-mpirun.sbatch", "--batch");
  if (job.exit_code == kNotPermitted) GTEST_SKIP() << job.output;
  expect_undisturbed(folder, job);
}

TEST(SlurmTest, AJobThatLosesARankContinues) {
  const std::vector<std::pair<std::string, std::string>> ways = {{"train.sbatch", "2"}, {"train-mpirun.sbatch", "1"}};
  for (std::size_t way = 0; way < ways.size(); ++way) {
    if (!testing::is_sampled(way, ways.size())) continue;
    const testing::TemporaryFolder folder;
    const std::string driver = folder.path("submit_and_kill");
    testing::write_file(driver, kSubmitAndKill);
    const ProgramResult job = testing::run_shell(
        "export LOCKSTEP_HEAL=1 LOCKSTEP_TRAINER=" + testing::trainer_program() +
            " OMPI_MCA_rmaps_base_oversubscribe=1; " + source_folder() + "/tests/system/private_slurm.sh " +
            folder.path("slurm") + " bash " + driver + " " + folder.path() + " " + source_folder() + "/tools/slurm/" +
            ways[way].first + " --train.lanes=2 --run.dir=" + folder.path("run") + kRun,
        300);
    if (job.exit_code == kNotPermitted) GTEST_SKIP() << job.output;
    EXPECT_NE(job.output.find("JobState=COMPLETED Restarts=0 ExitCode=0:0"), std::string::npos) << job.output;
    EXPECT_NE(testing::read_file(folder.path("run/metrics.jsonl")).find("\"heal/rung\":" + ways[way].second),
              std::string::npos)
        << job.output;
    const ProgramResult straight = testing::run_ranks(2, "--train.lanes=2 --run.dir=" + folder.path("straight") + kRun);
    ASSERT_EQ(straight.exit_code, 0) << straight.output;
    const auto end_of = [&](const std::string& run) {
      return checkpoints::read(folder.path(run + "/ckpt/") + checkpoints::folder_name(kSteps));
    };
    EXPECT_EQ(testing::differences(end_of("run"), end_of("straight")), "");
  }
}

TEST(SlurmTest, AnArrayTrainsEachLineOfAFile) {
  const testing::TemporaryFolder folder;
  const std::string tools = source_folder() + "/tools/slurm/";
  testing::write_file(folder.path("sweep.txt"), "--optim.lr=0.1\n--optim.lr=0.2\n");
  testing::write_file(folder.path("submit"),
                      "cd " + folder.path() + " && sbatch --wait --parsable --array=1-2 --ntasks=1 " + tools +
                          "sweep.sbatch sweep.txt --data.train_size=96 --data.val_size=48 --model.name=mlp "
                          "--train.max_epochs=1; cat ./*.out\n");
  const ProgramResult job = testing::run_shell(
      "export LOCKSTEP_TRAINER=" + testing::trainer_program() + " LOCKSTEP_JOB_SCRIPT=" + tools + "train.sbatch; " +
          source_folder() + "/tests/system/private_slurm.sh " + folder.path("slurm") + " bash " + folder.path("submit"),
      300);
  if (job.exit_code == kNotPermitted) GTEST_SKIP() << job.output;
  for (const std::string task : {"1", "2"}) {
    const std::string run = folder.path("runs/lockstep-1_" + task);
    EXPECT_NE(testing::read_file(run + "/argv.txt").find("--optim.lr=0." + task), std::string::npos) << job.output;
    EXPECT_NE(testing::read_file(run + "/STATUS.json").find("\"done\""), std::string::npos) << job.output;
  }
}

}  // namespace slurm_test
}  // namespace lockstep
