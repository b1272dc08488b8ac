// SPDX-License-Identifier: BSD-3-Clause
// Programs that call Lockstep as a library: the examples, and others that a C compiler sees.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "support/program.hpp"

namespace lockstep {
namespace embedding_test {

using testing::ProgramResult;

std::string built(const std::string& path) {
  const char* const folder = std::getenv("LOCKSTEP_BINARY_DIR");
  return std::string(folder != nullptr ? folder : ".") + "/" + path;
}

std::string example(const std::string& name) { return built("examples/" + name); }

ProgramResult run_example(int ranks, const std::string& arguments) {
  return testing::run_shell(testing::mpirun_command(ranks) + " " + example(arguments));
}

std::string last_line(const std::string& output) {
  std::istringstream lines(output);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("relative error") != std::string::npos) last = line;
  }
  return last;
}

double last_number(const std::string& line) { return std::stod(line.substr(line.rfind(' ') + 1)); }

class HeatTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(example("heat"))) GTEST_SKIP() << "there is no Fortran compiler";
  }
  std::string folder(const std::string& name) const { return folder_.path(name); }

  testing::TemporaryFolder folder_;
};

TEST_F(HeatTest, TheNetworkLearnsAndItsBitsDoNotDependOnTheRanks) {
  std::string expected;
  for (const int ranks : {1, 2, 3, 4}) {
    if (testing::is_sample() && ranks == 3) continue;
    const ProgramResult outcome = run_example(ranks, "heat " + folder("run" + std::to_string(ranks)));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const std::string line = last_line(outcome.output);
    if (expected.empty()) expected = line;
    EXPECT_EQ(line, expected) << ranks << " ranks";
    // The error is above 0.5 if every second step is left out.
    EXPECT_LT(last_number(line), 0.02) << line;
  }
}

TEST_F(HeatTest, AKilledRunContinuesToTheSameBits) {
  const ProgramResult whole = run_example(2, "heat " + folder("whole"));
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  const std::string killed = folder("killed");
  const ProgramResult first = testing::run_shell(
      "OMPI_MCA_btl_vader_backing_directory=" + folder_.path() + " setsid " + testing::mpirun_command(2) + " " +
      example("heat") + " " + killed + " 1000000 & job=$!; " + "for i in $(seq 600); do [ -e " + killed +
      "/ckpt/step-000000000100 ] && break; sleep 0.02; done; " + "pkill -KILL -s $job; wait $job");
  EXPECT_NE(first.exit_code, 0);
  ASSERT_TRUE(std::filesystem::exists(killed + "/ckpt/step-000000000100")) << first.output;
  // The program was to train longer than this run.
  const ProgramResult resumed = run_example(3, "heat " + killed + " 400");
  if (resumed.output.find("step 400") == std::string::npos) GTEST_SKIP() << "the run was killed after its 400 steps";
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(last_line(resumed.output), last_line(whole.output));
}

TEST(ClosureTest, TheNetworkHalvesTheErrorOfTheCoarseSolver) {
  const ProgramResult outcome = run_example(2, "closure");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST(TransitTest, RanksTrainWithTheSamplesOfOthers) {
  for (const int ranks : {2, 4}) {
    const ProgramResult outcome = run_example(ranks, "transit");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  }
}

TEST(ServeTest, AProgramWithoutMpiPredictsLikeTrainer) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.path("run");
  const ProgramResult trained = testing::run_ranks(
      1, " --model.name=mlp --train.max_steps=30 --data.train_size=480 --data.val_size=8 --run.dir=" + run);
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  std::string zeros;
  for (int i = 0; i < 2 * 28 * 28; ++i) zeros += "0.5 ";
  testing::write_file(folder.path("samples"), zeros);
  const ProgramResult served = testing::run_shell(example("serve") + " " + run + " < " + folder.path("samples"));
  ASSERT_EQ(served.exit_code, 0) << served.output;
  std::istringstream classes(served.output);
  int first = -1;
  int second = -1;
  classes >> first >> second;
  EXPECT_EQ(first, second);
  EXPECT_GE(first, 0);
  EXPECT_LT(first, 10);
  const ProgramResult wrong = testing::run_shell(example("serve") + " /nowhere < /dev/null");
  EXPECT_EQ(wrong.exit_code, 4);
  EXPECT_EQ(wrong.output, "serve: /nowhere: does not exist\n");
}

TEST(TrainerTest, ArraysOfAProgramAreRefusedOnEveryRank) {
  const testing::TemporaryFolder folder;
  const ProgramResult outcome = testing::run_ranks(
      2,
      " --data.name=arrays --data.input_shape=3 --data.target_shape=2 --model.name=mlp --eval.every=never --run.dir=" +
          folder.path("run"));
  EXPECT_EQ(outcome.rank_codes, (std::vector<int>{2, 2})) << outcome.output;
  const std::vector<std::string> errors = testing::error_lines(outcome.output);
  ASSERT_EQ(errors.size(), 1U) << outcome.output;
  EXPECT_NE(errors[0].find("samples come from the program"), std::string::npos) << errors[0];
}

/// Runs a case of tests/system/c_caller.c.
ProgramResult run_caller(const std::string& arguments, int ranks = 0, const std::string& environment = "",
                         const std::string& mpirun_options = "") {
  const std::string program = environment + " " + built("tests/system/c_caller") + " " + arguments;
  return testing::run_shell(ranks == 0 ? "env " + program
                                       : testing::mpirun_command(ranks) + mpirun_options + " env " + program);
}

TEST(CCallerTest, EveryLevelOfThreadSupportWillDo) {
  for (const char* const level : {"single", "funneled", "serialized", "multiple"}) {
    const ProgramResult outcome = run_caller(std::string("train ") + level, 2);
    EXPECT_EQ(outcome.exit_code, 0) << level << "\n" << outcome.output;
    EXPECT_NE(outcome.output.find("trained"), std::string::npos) << outcome.output;
  }
}

TEST(CCallerTest, AProgramWithoutMpiTrainsAndNothingIsPrinted) {
  const ProgramResult outcome = run_caller("quiet");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "");
}

TEST(CCallerTest, HandlersAndForksOfTheProgramStayItsOwn) {
  const ProgramResult outcome = run_caller("handlers multiple", 2);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST(CCallerTest, WrongCallsGetASentence) {
  const ProgramResult outcome = run_caller("misuse");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST(CCallerTest, MpiThatIsNotInitializedIsNamed) {
  const ProgramResult outcome = run_caller("uninitialized");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST(CCallerTest, AProgramWithAnotherMpiIsRefusedWithBothNames) {
  const ProgramResult outcome = run_caller("other_mpi", 0, "LD_PRELOAD=" + built("tests/system/libother_mpi.so"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("but the program runs with Imaginary MPI 7.1"), std::string::npos) << outcome.output;
}

/// Jobs that continue when a rank dies.
class DeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const ProgramResult help = testing::run_shell(testing::mpirun_command(1) + " --enable-recovery true");
    if (help.exit_code != 0) GTEST_SKIP() << "this MPI library ends a job when a rank dies";
  }
  static std::string output_of(const std::string& arguments) {
    return run_caller(arguments, 3, "", " --enable-recovery").output;
  }
};

TEST_F(DeathTest, OfAProducerIsReportedAndTheRunGoesOn) {
  const std::string output = output_of("producer_dies multiple");
  EXPECT_NE(output.find("the producer on rank 2 is gone: its process has ended without closing the run\n"),
            std::string::npos)
      << output;
  EXPECT_NE(output.find("all producers have closed the run or are gone; they have sent 606 samples and dropped 0;"),
            std::string::npos)
      << output;
  EXPECT_EQ(output.find("wrong:"), std::string::npos) << output;
}

TEST_F(DeathTest, OfTheRankThatTrainsIsReportedToProducers) {
  const std::string output = output_of("trainer_dies multiple");
  EXPECT_NE(output.find("rank 0, which trained, is gone: its process has ended\n"), std::string::npos) << output;
  EXPECT_EQ(output.find("wrong:"), std::string::npos) << output;
}

TEST(CCallerTest, OpenAndCloseLoseNoMemory) {
  const ProgramResult outcome = run_caller("leaks");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST(CCallerTest, ValgrindFindsNoLostMemory) {
  if (testing::is_sample()) GTEST_SKIP() << "takes half a minute";
  if (testing::run_shell("valgrind --version").exit_code != 0) GTEST_SKIP() << "there is no valgrind";
  const ProgramResult outcome = testing::run_shell("LOCKSTEP_CPU=generic valgrind --leak-check=full " +
                                                   built("tests/system/c_caller") + " quiet");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("definitely lost: 0 bytes in 0 blocks"), std::string::npos) << outcome.output;
}

}  // namespace embedding_test
}  // namespace lockstep
