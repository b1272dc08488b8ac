// SPDX-License-Identifier: BSD-3-Clause
// `trainer doctor` on machines that are made ill.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>

#include "support/program.hpp"

namespace lockstep {
namespace doctor_test {

namespace fs = std::filesystem;
using testing::ProgramResult;

/// The output of the command, alone, after the words of a shell.
ProgramResult alone(const std::string& before, const std::string& options = "") {
  return testing::run_shell(before + " " + testing::trainer_program() + " doctor --run.threads=1 " + options);
}

void expect_said(const ProgramResult& outcome, int exit_code, const std::string& words) {
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.output;
  EXPECT_NE(outcome.output.find(words), std::string::npos) << words << " is missing in: " << outcome.output;
}

TEST(DoctorTest, ThisMachineCanTrain) {
  const testing::TemporaryFolder folder;
  const ProgramResult outcome =
      testing::run_ranks(3, "doctor --json --run.threads=1 --run.dir=" + folder.path("a/run"));
  ASSERT_EQ(outcome.rank_codes, (std::vector<int>{0, 0, 0})) << outcome.output;
  const std::size_t begin = outcome.output.find("[\n");
  ASSERT_NE(begin, std::string::npos) << outcome.output;
  const auto findings = nlohmann::json::parse(outcome.output.substr(begin, outcome.output.rfind(']') + 1 - begin));
  std::string subjects;
  for (const auto& finding : findings) {
    EXPECT_NE(finding.at("verdict"), "fault") << finding;
    if (finding.at("verdict") == "ok") subjects += finding.at("subject").get<std::string>() + " ";
    if (finding.at("subject") == "network") {
      EXPECT_NE(finding.at("evidence").get<std::string>().find("inside a host"), std::string::npos) << finding;
    }
  }
  for (const char* subject : {"processor", "network", "files", "slurm", "gpu"}) {
    EXPECT_NE(subjects.find(subject), std::string::npos) << subject << " is missing in: " << outcome.output;
  }
  EXPECT_FALSE(fs::exists(folder / "a/run"));
}

TEST(DoctorTest, ALauncherOfAnotherMpiIsNamed) {
  expect_said(alone("PMI_SIZE=4"), 2, "the launcher started 4 ranks, but MPI sees 1");
}

TEST(DoctorTest, FewerProcessorsThanThreadsAreNamed) {
  expect_said(testing::run_shell("taskset -c 0 " + testing::trainer_program() + " doctor --run.threads=2"), 0,
              "has 2 threads, but may use 1 of the processors");
}

TEST(DoctorTest, AFolderThatCannotBeWrittenIsAFault) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder.path("file"), "");
  const ProgramResult outcome = testing::run_ranks(2, "doctor --run.threads=1 --run.dir=" + folder.path("file/run"));
  EXPECT_EQ(outcome.rank_codes, (std::vector<int>{2, 2})) << outcome.output;
  EXPECT_NE(outcome.output.find("fault     files      rank 0 on "), std::string::npos) << outcome.output;
}

TEST(DoctorTest, OtherVariablesAndProgramsOnARankAreNamed) {
  const testing::TemporaryFolder folder;
  const std::string trainer = testing::trainer_program();
  const auto pair = [&](const std::string& first, const std::string& second) {
    const std::string words = " doctor --run.threads=1";
    return testing::run_shell(testing::mpirun_command(1) + " " + first + words + " : -np 1 " + second + words);
  };
  expect_said(pair("env OMP_PROC_BIND=true " + trainer, trainer), 0,
              "the variable OMP_PROC_BIND is true on rank 0, but not set on rank 1");
  testing::run_shell("cp " + trainer + " " + folder.path("trainer") + "; printf x >> " + folder.path("trainer"));
  expect_said(pair(trainer, folder.path("trainer")), 2, "runs another program file than rank 0");
}

TEST(DoctorTest, SmallSharedMemoryIsAFault) {
  const ProgramResult can = testing::run_shell("unshare -m mount -t tmpfs -o size=8m tmpfs /dev/shm");
  if (can.exit_code != 0) GTEST_SKIP() << "this user may not mount";
  const ProgramResult outcome = testing::run_shell("unshare -m sh -c 'mount -t tmpfs -o size=8m tmpfs /dev/shm; " +
                                                   testing::trainer_program() + " doctor --run.threads=1'");
  expect_said(outcome, 2, "MB free of 8, for 1 ranks that share parameters and gradients there");
}

TEST(DoctorTest, SegmentsThatNobodyUsesAreNamed) {
  const std::string path = "/dev/shm/lockstep_doctor_test";
  testing::write_file(path, "x");
  const ProgramResult outcome = alone("");
  fs::remove(path);
  expect_said(outcome, 0, path);
}

TEST(DoctorTest, LimitsOfFilesAreNamed) { expect_said(alone("ulimit -n 1024;"), 0, "may open 1024 files"); }

TEST(DoctorTest, OpenMpThatIsLoadedTwiceIsNamed) {
  const testing::TemporaryFolder folder;
  const std::string library = folder.path("libiomp5.so");
  const ProgramResult made = testing::run_shell("echo 'int unused;' | cc -shared -x c - -o " + library);
  if (made.exit_code != 0) GTEST_SKIP() << made.output;
  expect_said(alone("LD_PRELOAD=" + library), 0, "has loaded OpenMP twice");
}

TEST(DoctorTest, AJobThatIsNotRequeuedIsNamed) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder.path("scontrol"), "#!/bin/sh\necho JobId=7 Requeue=0 TimeLimit=01:00:00\n");
  fs::permissions(folder / "scontrol", fs::perms::owner_all);
  const ProgramResult outcome = alone("PATH=" + folder.path() + ":$PATH SLURM_JOB_ID=7");
  expect_said(outcome, 0, "job 7 is not requeued when a host fails");
  expect_said(outcome, 0, "job 7 has a time limit of 01:00:00");
}

}  // namespace doctor_test
}  // namespace lockstep
