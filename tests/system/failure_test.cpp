// SPDX-License-Identifier: BSD-3-Clause
// What fails on one rank ends all of them within seconds, with one sentence and the documented exit code.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "checkpoints/store/store.hpp"
#include "report/files/metrics.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace failure_test {

namespace fs = std::filesystem;
using testing::ProgramResult;

constexpr int kConfiguration = 2;
constexpr int kData = 3;
constexpr int kInternal = 70;
constexpr double kSeconds = 5;  // limit of a failed run; one second may go into a rank's check for its peers

const char* const kRun = " --model.name=failing --train.max_steps=100000 --data.train_size=480";

std::string failing_program() {
  const char* const binaries = std::getenv("LOCKSTEP_BINARY_DIR");
  return std::string(binaries != nullptr ? binaries : ".") + "/tests/system/failing_program";
}

std::int64_t count(const std::string& text, const std::string& word) {
  std::int64_t found = 0;
  for (std::size_t position = text.find(word); position != std::string::npos; position = text.find(word, position + 1))
    ++found;
  return found;
}

/// The call that fails, how the run is asked to meet it, and how it ends.
struct Failure {
  const char* place;
  const char* options;
  int exit_code = kInternal;
  const char* sentence = "";  // empty = "the `place` of this test fails"
};

const char* const kSamples = "--data.name=samples --eval.every=never";

class FailureTest : public ::testing::TestWithParam<Failure> {};

TEST_P(FailureTest, OfOneRankEndsAll) {
  const auto& [place, more, exit_code, sentence] = GetParam();
  const testing::TemporaryFolder folder;
  const ProgramResult outcome = testing::run_shell(
      std::string("LOCKSTEP_FAILS=") + place + " LOCKSTEP_STAMP=" + folder.path("failed") + " " +
      testing::mpirun_command(3) + " " + failing_program() + kRun + " " + more + " --run.dir=" + folder.path("run") +
      "; code=$?; touch " + folder.path("ended") + "; exit $code");
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.output;
  const std::string told = *sentence != '\0' ? sentence : std::string("the ") + place + " of this test fails";
  EXPECT_EQ(count(outcome.output, told), 1) << outcome.output;
  EXPECT_EQ(count(outcome.output, " error r"), 1) << outcome.output;  // peers know that it is not theirs
  EXPECT_EQ(count(outcome.output, "frame #"), 0) << outcome.output;   // a line of a stack
  ASSERT_TRUE(fs::exists(folder / "failed")) << outcome.output;
  const auto took = fs::last_write_time(folder / "ended") - fs::last_write_time(folder / "failed");
  EXPECT_LT(std::chrono::duration<double>(took).count(), kSeconds) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(Places, FailureTest,
                         ::testing::Values(Failure{"forward", ""}, Failure{"backward", ""},
                                           Failure{"hook", "--train.hooks=failing"},
                                           Failure{"metric", "--eval.metrics=failing --eval.every=2"},
                                           Failure{"metric", "--train.metrics=failing"}),
                         [](const auto& test) { return test.param.place + std::to_string(test.index); });

INSTANTIATE_TEST_SUITE_P(
    Data, FailureTest,
    ::testing::Values(
        Failure{"loss", "", kData, "error r2/3 the losses of the model for samples "},
        Failure{"sample", kSamples, kData, "/3 sample 7 of the training data: the sample of this test fails"},
        Failure{"key", kSamples, kData,
                "/3 the training data, batch 0: samples cannot be collated: sample 7 has no 'label', but sample"},
        Failure{"structure", kSamples, kData, "and [9] of sample 7 differ"},
        Failure{"batch", "--data.name=batches --eval.every=never", kData,
                "/3 sample 7 of the training data: the data set gave 0 samples instead of 1"}),
    [](const auto& test) { return std::string(test.param.place); });

// A run that dies in the middle of an evaluation has saved the step before it and continues from there. The values of
// that evaluation are missing, the others are as if nothing had been.
TEST(FailureInTestPhaseTest, ResumesBitForBit) {
  const testing::TemporaryFolder folder;
  const std::string options = std::string(" --model.name=failing --train.max_steps=12 ") +
                              "--data.train_size=480 --eval.metrics=failing --eval.every=5 --ckpt.every=3 " +
                              "--eval.batch_size=100 --data.val_size=1200 --resume=auto --run.dir=";
  const auto run = [&](const std::string& environment, const std::string& name) {
    return testing::run_shell(environment + testing::mpirun_command(2) + " " + failing_program() + options +
                              folder.path(name));
  };
  EXPECT_EQ(run("", "whole").exit_code, 0);
  const ProgramResult broken = run("LOCKSTEP_FAILS=metric LOCKSTEP_STAMP=" + folder.path("failed") + " ", "parts");
  EXPECT_EQ(broken.exit_code, kInternal) << broken.output;
  const ProgramResult resumed = run("", "parts");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_NE(resumed.output.find("resumed at step 5"), std::string::npos) << resumed.output;
  const std::string end = "/ckpt/" + checkpoints::folder_name(12);
  const auto whole = checkpoints::read(folder.path("whole") + end);
  EXPECT_EQ(testing::differences(whole, checkpoints::read(folder.path("parts") + end)), "");
  auto values = report::read_series(folder.path("whole") + "/metrics.jsonl", "val/loss");
  ASSERT_EQ(values.size(), 3u);
  values.erase(values.begin());
  EXPECT_EQ(report::read_series(folder.path("parts") + "/metrics.jsonl", "val/loss"), values);
}

// Files of rank 0 may not grow any more: it alone writes metrics, and its peers train on.
TEST(WriterFailureTest, EndsAll) {
  const testing::TemporaryFolder folder;
  const ProgramResult outcome = testing::run_shell(
      testing::mpirun_command(3) + " sh -c 'test \"$OMPI_COMM_WORLD_RANK\" != 0 || prlimit --pid $$ --fsize=65536; " +
          "exec \"$0\" \"$@\"' " + testing::trainer_program() +
          " --model.name=mlp --train.max_steps=100000 --data.train_size=480 --log.every=1 "
          "--log.tensorboard=false --ckpt.keep_best=0 --comm.backend=mpi --run.dir=" +
          folder.path("run"),
      60);
  EXPECT_EQ(outcome.exit_code, kConfiguration) << outcome.output;
  EXPECT_EQ(count(outcome.output, "metrics.jsonl cannot be written"), 1) << outcome.output;
}

}  // namespace failure_test
}  // namespace lockstep
