// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/wait.h>

namespace lockstep::mpi {
namespace guard_test {

struct Outcome {
  int code = -1;
  std::string output;
};

Outcome run(const std::string& command) {
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  Outcome outcome;
  FILE* pipe = popen(("timeout 40 " + command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer{};
  for (std::size_t read = 0; (read = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    outcome.output.append(buffer.data(), read);
  }
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

Outcome run_job(const std::string& way) {
  return run(std::string(LOCKSTEP_MPIRUN_COMMAND) + " -np 2 " + LOCKSTEP_GUARD_HELPER + " " + way);
}

void expect_end(const std::string& way, int code, const std::string& words) {
  const Outcome outcome = run_job(way);
  EXPECT_EQ(outcome.code, code) << way << ": " << outcome.output;
  EXPECT_NE(outcome.output.find(words), std::string::npos) << way << ": " << outcome.output;
}

TEST(GuardTest, AJobThatFinishesReturnsZeroInSilence) {
  const Outcome outcome = run_job("finish");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "");
}

TEST(GuardTest, ExitOfOneRankEndsTheJob) {
  expect_end("exit", 70, "lockstep: rank 1: the program called exit before the job ended; ending the job\n");
}

TEST(GuardTest, ReturnFromMainOfOneRankEndsTheJob) {
  expect_end("return", 70, "lockstep: rank 1: main returned before all ranks had finished; ending the job\n");
}

TEST(GuardTest, UncaughtExceptionEndsTheJobAndIsNamed) {
  expect_end("throw", 70, "lockstep: rank 1: uncaught exception: out of luck; ending the job\n");
}

TEST(GuardTest, ExceptionInAThreadEndsTheJobAndIsNamed) {
  expect_end("thread", 70, "lockstep: rank 1: uncaught exception: worker failed; ending the job\n");
}

TEST(GuardTest, UncaughtErrorKeepsItsOwnCode) {
  expect_end("data-error", 3, "lockstep: rank 1: train.bin: is truncated; ending the job\n");
}

TEST(GuardTest, AbortEndsTheJobWithItsCode) { expect_end("abort", 6, ""); }

TEST(GuardTest, SettingsOfTheUserAreKept) {
  const std::string helper = std::string(LOCKSTEP_GUARD_HELPER) + " settings";
  EXPECT_EQ(run("env OMPI_MCA_pml=^cm " + helper).output, "pml=^cm\n");
}

TEST(GuardTest, TasksThatCannotSeeEachOtherAreRefusedInOneSentence) {
  const Outcome outcome = run(std::string("env SLURM_STEP_ID=0 SLURM_NTASKS=4 ") + LOCKSTEP_GUARD_HELPER + " finish");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.output.find("Slurm started 4 tasks"), 0U) << outcome.output;
}

}  // namespace guard_test
}  // namespace lockstep::mpi
