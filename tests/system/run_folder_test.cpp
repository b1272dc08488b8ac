// SPDX-License-Identifier: BSD-3-Clause
// The folder of a run belongs to one run, and its records survive other starts, signals and closed pipes.
#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoints/store/store.hpp"
#include "support/program.hpp"
#include "support/sampling.hpp"

namespace lockstep {
namespace run_folder_test {

namespace fs = std::filesystem;
using testing::ProgramResult;

const std::string kModel = " --data.val_size=96 --model.name=mlp --model.hidden=8 --log.every=1 --eval.every=never";
const std::string kShort = " --data.train_size=480 --train.max_steps=20" + kModel;
const std::string kEndless = " --data.train_size=48000 --train.max_steps=100000000 --ckpt.every=never" + kModel;

/// Digests of all files below `run`, without the empty ones.
std::string digests(const testing::TemporaryFolder& folder) {
  return testing::run_shell("cd " + folder.path() + " && find run -type f | sort | xargs md5sum").output;
}

/// A shell's words: starts an endless run, $job, and waits for some of its steps.
std::string start(const testing::TemporaryFolder& folder, const std::string& prefix, const std::string& suffix = "") {
  return "set -m; (" + prefix + testing::trainer_program() + " --run.dir=" + folder.path("run") + kEndless + suffix +
         ") & job=$!; for i in $(seq 400); do [ $(cat " + folder.path("run/metrics.jsonl") +
         " 2>/dev/null | wc -l) -ge 20 ] && break; sleep 0.05; done; ";
}

TEST(RunFolderTest, RunsThatStartInOneSecondHaveFoldersOfTheirOwn) {
  const testing::TemporaryFolder folder;
  const ProgramResult all = testing::run_shell("cd " + folder.path() + " && for i in 1 2 3 4 5 6 7 8; do " +
                                               testing::trainer_program() + kShort + " || echo failed & done; wait");
  EXPECT_EQ(all.output.find("failed"), std::string::npos) << all.output;
  std::int64_t runs = 0;
  for (const auto& run : fs::directory_iterator(folder / "runs")) {
    ++runs;
    EXPECT_NE(testing::read_file(run.path() / "STATUS.json").find("\"done\""), std::string::npos) << run.path();
  }
  EXPECT_EQ(runs, 8) << all.output;
}

TEST(RunFolderTest, WordsInBracesGetTheValuesOfTheJob) {
  const testing::TemporaryFolder folder;
  const std::string slurm = "SLURM_JOB_ID=100 SLURM_ARRAY_JOB_ID=77 SLURM_ARRAY_TASK_ID=3 LOCKSTEP_SIGNALS_FORWARDED=1";
  const std::string names = " --run.name=lr-{array} --run.dir=" + folder.path("{name}/{job}_{array}");
  const ProgramResult first = testing::run_ranks(2, names + kShort, 120, slurm);
  EXPECT_EQ(first.exit_code, 0) << first.output;
  EXPECT_TRUE(fs::exists(folder / "lr-3/77_3/report.html")) << first.output;
  const ProgramResult again = testing::run_ranks(2, names + kShort + " --resume=auto", 120, slurm);
  EXPECT_NE(again.output.find("the run is finished"), std::string::npos) << again.output;
  const auto error_of = [&](const std::string& dir, const std::string& environment = "") {
    const ProgramResult outcome = testing::run_ranks(2, " --run.dir=" + folder.path(dir) + kShort, 120, environment);
    EXPECT_EQ(outcome.rank_codes, (std::vector<int>{2, 2})) << outcome.output;
    return testing::error_lines(outcome.output).at(0);
  };
  EXPECT_NE(
      error_of("{job}").find("error r0/2 run.dir (command line): {job} has no value, because this is no Slurm job"),
      std::string::npos);
  EXPECT_NE(error_of("{array}", "SLURM_JOB_ID=5").find("this is no task of a Slurm job array"), std::string::npos);
  EXPECT_NE(error_of("{jobs}").find("'{jobs}' is unknown; the words in braces are {job}, {array}, {time}, {name}"),
            std::string::npos);
  EXPECT_NE(error_of("a}b").find("'}' is unknown"), std::string::npos);
  EXPECT_NE(error_of("a{job").find("'{job' is unknown"), std::string::npos);
  const ProgramResult timed = testing::run_ranks(1, " --run.dir=" + folder.path("at-{time}") + kShort);
  EXPECT_EQ(timed.exit_code, 0) << timed.output;
  EXPECT_EQ(testing::run_shell("ls -d " + folder.path("at-20[0-9][0-9]*-[0-9]*") + " | wc -l").output, "1\n");
}

// Also with one Slurm job for both: the process of the holder is alive. The second run waits ten seconds for its end.
TEST(RunFolderTest, ASecondRunIsRefusedBeforeItWritesAnything) {
  std::uint64_t number = 0;
  for (const int ranks : {1, 2}) {
    for (const std::string slurm : {"", "SLURM_JOB_ID=41 LOCKSTEP_SIGNALS_FORWARDED=1 "}) {
      if (!testing::is_sampled(number++, 4)) continue;
      const testing::TemporaryFolder folder;
      const std::string records = "(cd " + folder.path("run") + " && md5sum config.resolved.* argv.txt env.json) ";
      const ProgramResult outcome = testing::run_shell(
          start(folder, slurm) + records + "> " + folder.path("before") + "; " + slurm +
          testing::mpirun_command(ranks) + " " + testing::trainer_program() +
          " --optim.lr=0.5 --run.dir=" + folder.path("run") + kShort + "; echo second $?; " + records + "| diff " +
          folder.path("before") + " - && echo same; kill -USR2 -- -$job; wait $job; echo first $?");
      EXPECT_NE(outcome.output.find("another run writes checkpoints to this folder"), std::string::npos)
          << outcome.output;
      for (const char* words : {"second 4", "same", "first 75"}) {
        EXPECT_NE(outcome.output.find(words), std::string::npos) << words << "\n" << outcome.output;
      }
      EXPECT_FALSE(fs::exists(folder / "run/failure.json"));
    }
  }
}

TEST(RunFolderTest, AFinishedRunSaysSoAndChangesNothing) {
  for (const int ranks : {1, 2}) {
    const testing::TemporaryFolder folder;
    const std::string arguments = "--run.dir=" + folder.path("run") + kShort;
    ASSERT_EQ(testing::run_ranks(ranks, arguments).exit_code, 0);
    const std::string before = digests(folder);
    for (const std::string resume : {"auto", "must", "20"}) {
      const ProgramResult again = testing::run_ranks(ranks, "--resume=" + resume + " " + arguments);
      EXPECT_EQ(again.exit_code, 0) << again.output;
      EXPECT_NE(again.output.find("the run is finished"), std::string::npos) << again.output;
      EXPECT_EQ(digests(folder), before) << resume;
    }
    const ProgramResult longer = testing::run_ranks(ranks, "--resume=auto " + arguments + " --train.max_steps=30");
    EXPECT_EQ(longer.exit_code, 0) << longer.output;
    EXPECT_NE(longer.output.find("resumed at step 20"), std::string::npos) << longer.output;
  }
}

// Its evaluations do not improve, because nothing is learned; 3 epochs of 5 steps, and 2 evaluations of patience.
TEST(RunFolderTest, ARunThatStoppedEarlyIsFinished) {
  for (const int ranks : {1, 2}) {
    const testing::TemporaryFolder folder;
    const std::string arguments = "--run.dir=" + folder.path("run") +
                                  " --data.train_size=240 --data.val_size=48 --model.name=mlp --model.hidden=8 "
                                  "--train.global_batch_size=48 --train.max_epochs=50 --optim.lr=0 ";
    const std::string patience = "--train.hooks=early_stopping,patience=";
    ASSERT_EQ(testing::run_ranks(ranks, arguments + patience + "2").exit_code, 0);
    const std::string before = digests(folder);
    const ProgramResult again = testing::run_ranks(ranks, "--resume=auto " + arguments + patience + "2");
    EXPECT_EQ(again.exit_code, 0) << again.output;
    EXPECT_NE(again.output.find("ckpt/step-000000000015 is at step 15, and early_stopping: val/loss has not improved"),
              std::string::npos)
        << again.output;
    EXPECT_EQ(digests(folder), before);
    const ProgramResult longer = testing::run_ranks(ranks, "--resume=auto " + arguments + patience + "3");
    EXPECT_EQ(longer.exit_code, 0) << longer.output;
    EXPECT_NE(longer.output.find("the run ends after step 20"), std::string::npos) << longer.output;
  }
}

TEST(RunFolderTest, ARunThatLosesItsLeaseEndsWithoutWritingToTheFolder) {
  const testing::TemporaryFolder folder;
  const ProgramResult outcome =
      testing::run_shell(start(folder, "", " --ckpt.every=50") + "printf 'host n1\\nprocess 7\\n' > " +
                         folder.path("run/ckpt/LEASE") + "; wait $job; echo first $?");
  EXPECT_NE(outcome.output.find("first 4"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("another run has taken over this folder: process 7 on n1"), std::string::npos)
      << outcome.output;
  EXPECT_FALSE(fs::exists(folder / "run/failure.json"));
  EXPECT_EQ(testing::read_file(folder / "run/ckpt/LEASE"), "host n1\nprocess 7\n");
}

TEST(RunFolderTest, AClosedPipeEndsNeitherTheRunNorItsLog) {
  const testing::TemporaryFolder folder;
  const ProgramResult outcome =
      testing::run_shell(testing::trainer_program() + " --log.console_s=0 --run.dir=" + folder.path("run") + kShort +
                         " | head -n 1; echo ${PIPESTATUS[0]}");
  EXPECT_NE(outcome.output.find("\n0\n"), std::string::npos) << outcome.output;
  const std::string log = testing::read_file(folder / "run/train.log");
  EXPECT_NE(log.find("step 20/20"), std::string::npos) << log;
  EXPECT_NE(log.find("standard output cannot be written any more; the log continues in"), std::string::npos) << log;
}

// Ctrl-C in a pipeline: the terminal sends INT to the trainer and to tee.
TEST(RunFolderTest, AnInterruptedPipelineSavesAndReturns75) {
  const testing::TemporaryFolder folder;
  const ProgramResult outcome = testing::run_shell(
      start(folder, "",
            "; echo trainer $? > " + folder.path("code") + ") 2>&1 | (tee " + folder.path("tee.log") + " > /dev/null") +
      "kill -INT -- -$(ps -o pgid= $job | tr -d ' '); for i in $(seq 200); do [ -s " + folder.path("code") +
      " ] && break; sleep 0.05; done; cat " + folder.path("code"));
  EXPECT_NE(outcome.output.find("trainer 75"), std::string::npos) << outcome.output;
  EXPECT_EQ(checkpoints::list(folder.path("run/ckpt")).size(), 1U);
}

TEST(RunFolderTest, HangUpSavesUnlessItIsIgnored) {
  const testing::TemporaryFolder folder;
  const ProgramResult one = testing::run_shell(start(folder, "exec ") + "kill -HUP $job; wait $job; echo code $?");
  EXPECT_NE(one.output.find("code 75"), std::string::npos) << one.output;
  const testing::TemporaryFolder other;
  const ProgramResult ignored =
      testing::run_shell(start(other, "exec nohup ") +
                         "kill -HUP $job; sleep 0.5; kill -0 $job && echo alive; kill -USR2 $job; "
                         "wait $job; echo code $?");
  EXPECT_NE(ignored.output.find("alive"), std::string::npos) << ignored.output;
  EXPECT_NE(ignored.output.find("code 75"), std::string::npos) << ignored.output;
}

/// A shell's word: the process of the last rank of the run in `folder`. Only ranks begin with the name of the program.
std::string last_rank(const testing::TemporaryFolder& folder) {
  return "$(pgrep -f '^" + testing::trainer_program() + " --run.dir=" + folder.path("run") + "' | tail -n 1)";
}

TEST(RunFolderTest, ASignalToOneOfTwoRanksSavesOnBoth) {
  for (const std::string signal : {"HUP", "USR1", "INT"}) {
    const testing::TemporaryFolder folder;
    const ProgramResult outcome =
        testing::run_shell(start(folder, "exec " + testing::mpirun_command(2) + " ") + "kill -" + signal + " " +
                           last_rank(folder) + "; wait $job; echo code $?");
    EXPECT_NE(outcome.output.find("code 75"), std::string::npos) << signal << outcome.output;
    EXPECT_EQ(checkpoints::list(folder.path("run/ckpt")).size(), 1U) << signal << outcome.output;
    EXPECT_NE(testing::read_file(folder / "run/STATUS.json").find("\"stopped\""), std::string::npos) << signal;
  }
}

// INT goes to mpirun, the ranks and tee, as from a terminal; a reader that ends early lets mpirun end. The variable is
// that of Open MPI for the time that it leaves the ranks.
TEST(RunFolderTest, APipelineOfTwoRanksSaves) {
  for (const std::string reader : {"tee", "head"}) {
    const testing::TemporaryFolder folder;
    const std::string pipe = reader == "tee" ? "tee " + folder.path("tee.log") + " > /dev/null" : "head -n 1";
    const std::string end = reader == "tee" ? "kill -INT -- -$(ps -o pgid= $job | tr -d ' '); " : "";
    const ProgramResult outcome = testing::run_shell(
        start(folder, "export OMPI_MCA_odls_base_sigkill_timeout=3; " + testing::mpirun_command(2) + " ",
              " --log.console_s=0) 2>&1 | (" + pipe) +
        end + "for i in $(seq 200); do grep -q stopped " + folder.path("run/STATUS.json") +
        " && break; sleep 0.05; done");
    EXPECT_NE(testing::read_file(folder / "run/STATUS.json").find("\"stopped\""), std::string::npos)
        << reader << outcome.output;
    EXPECT_EQ(checkpoints::list(folder.path("run/ckpt")).size(), 1U) << reader << outcome.output;
  }
}

TEST(RunFolderTest, AResultThatCannotBeWrittenIsAnError) {
  const testing::TemporaryFolder folder;
  ASSERT_EQ(testing::run_ranks(1, "--run.dir=" + folder.path("run") + kShort).exit_code, 0);
  const std::string trainer = "cd " + folder.path() + "; " + testing::trainer_program() + " ";
  const std::string ckpt = "cd " + folder.path() + "; " + testing::ckpt_program() + " ";
  std::uint64_t number = 0;
  for (const std::string& command :
       {trainer + "eval --from run --json", trainer + "predict --from run --predict.out=p.jsonl", trainer + "data",
        trainer + "schedule", trainer + "config", trainer + "report run", trainer + "compare run run",
        trainer + "--version", trainer + "--help", ckpt + "info run", ckpt + "ls run", ckpt + "--help"}) {
    for (const std::string out : {" > /dev/full", " >&-", ") | true; exit ${PIPESTATUS[0]}"}) {
      if (!testing::is_sampled(number++, 4)) continue;
      const std::string begin = out.starts_with(")") ? "(sleep 0.3; " : "";  // the reader ends first
      const ProgramResult outcome = testing::run_shell(begin + command + out);
      EXPECT_EQ(outcome.exit_code, 3) << command << out << "\n" << outcome.output;
      EXPECT_NE(outcome.output.find("could not be written"), std::string::npos) << command << out;
    }
  }
}

TEST(RunFolderTest, LackOfMemoryStatesWhatWasRequested) {
  const testing::TemporaryFolder folder;
  const ProgramResult outcome =
      testing::run_shell("ulimit -v 1500000; " + testing::trainer_program() + " --run.dir=" + folder.path("run") +
                         kShort + " --model.hidden=16384,16384");
  EXPECT_EQ(outcome.exit_code, 7) << outcome.output;
  EXPECT_NE(outcome.output.find("out of memory: 1073741824 bytes were requested; this process uses "),
            std::string::npos)
      << outcome.output;
  EXPECT_NE(testing::read_file(folder / "run/STATUS.json").find("\"exit_code\": 7"), std::string::npos);
}

TEST(RunFolderTest, TheHomeFolderIsFoundInEveryPath) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder / "short.ini", "[run]\ndir = ~/run\n");
  const std::string program = "cd " + folder.path() + "; HOME=" + folder.path() + " ";
  const std::string trainer = program + testing::trainer_program();
  for (const std::string& command :
       {trainer + " '--config=~/short.ini'" + kShort, trainer + " eval '--from=~/run'", trainer + " report '~/run'",
        trainer + " '--init.from=~/run' '--run.dir=~/other'" + kShort,
        program + testing::ckpt_program() + " info '~/run'",
        program + testing::ckpt_program() + " convert '~/run' '--to=~/weights.npz'"}) {
    const ProgramResult outcome = testing::run_shell(command);
    EXPECT_EQ(outcome.exit_code, 0) << command << "\n" << outcome.output;
  }
  EXPECT_TRUE(fs::exists(folder / "weights.npz"));
  EXPECT_TRUE(fs::exists(folder / "other/ckpt"));
  EXPECT_FALSE(fs::exists(folder / "~"));
}

}  // namespace run_folder_test
}  // namespace lockstep
