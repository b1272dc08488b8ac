// SPDX-License-Identifier: BSD-3-Clause
// Runs on the fake GPU that are killed and resumed end as if nothing had happened, on the GPU and on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "checkpoints/store/store.hpp"
#include "fake_run.hpp"
#include "run_table.hpp"
#include "support/archives.hpp"
#include "support/sampling.hpp"

namespace lockstep {
namespace resume_test {

namespace fs = std::filesystem;
using testing::ProgramResult;

constexpr int kRanks = 2;
constexpr int kSteps = 30;

class FakeGpuResumeTest : public ::testing::TestWithParam<std::string> {
 protected:
  /// The settings of the row of runs.txt with this name.
  void SetUp() override {
    for (const testing::RunRow& row : testing::run_rows()) {
      if (row.name != GetParam()) continue;
      for (const std::string& word : row.words) keys_ += " '--" + word + "'";
    }
    ASSERT_NE(keys_, "");
  }

  std::string arguments(const std::string& run, const std::string& device) const {
    return testing::kFakeRun + "--ckpt.every=3 --run.device=" + device + keys_ +
           " --resume=auto --train.max_steps=" + std::to_string(kSteps) + " --run.dir=" + folder_.path(run);
  }

  ProgramResult on_fake(const std::string& run, const std::string& variables) const {
    return testing::run_on_fake_gpu(kRanks, arguments(run, "cuda"), testing::kKernelsOfTheFake + variables);
  }

  /// Kills all ranks once there is a checkpoint of step 6.
  void run_and_kill(const std::string& run) const {
    const std::string folder = folder_.path(run);
    const std::string command = testing::kKernelsOfTheFake + "FAKE_GPU_DELAY_US=2000 " +
                                testing::mpirun_command(kRanks) + " " + testing::on_fake_gpu() +
                                testing::trainer_program() + arguments(run, "cuda");
    const ProgramResult killed = testing::run_shell(
        command + " & job=$!; while [ ! -e '" + folder + "/ckpt/" + checkpoints::folder_name(6) +
        "' ] && kill -0 $job; do sleep 0.02; done; for p in $(pgrep -x trainer); do if grep -qa -e '--run.dir=" +
        folder + "' /proc/$p/cmdline; then kill -9 $p; fi; done; wait $job");
    EXPECT_NE(killed.exit_code, 0) << killed.output;
    EXPECT_FALSE(fs::exists(checkpoints::checkpoint_of(folder + "/ckpt", kSteps)));
  }

  std::string differences(const std::string& run, const std::string& other) const {
    const auto read = [&](const std::string& name) {
      return checkpoints::read(checkpoints::checkpoint_of(folder_.path(name + "/ckpt"), kSteps));
    };
    return testing::differences(read(run), read(other));
  }

  testing::TemporaryFolder folder_;
  std::string keys_;
};

TEST_P(FakeGpuResumeTest, EndsAsTheRunThatWasNotKilled) {
  const ProgramResult whole = on_fake("whole", "");
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  run_and_kill("killed");
  fs::copy(folder_.path("killed"), folder_.path("moved"), fs::copy_options::recursive);
  const ProgramResult resumed = on_fake("killed", "FAKE_GPU_DELAY_US=200");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_NE(resumed.output.find("resumed at step "), std::string::npos) << resumed.output;
  EXPECT_EQ(differences("killed", "whole"), "");
  if (GetParam() != "Sgd") return;  // others differ in the last bits
  const ProgramResult moved = testing::run_ranks(kRanks, arguments("moved", "cpu"), 120, testing::kKernelsOfTheFake);
  ASSERT_EQ(moved.exit_code, 0) << moved.output;
  EXPECT_EQ(differences("moved", "whole"), "");
}

INSTANTIATE_TEST_SUITE_P(Rows, FakeGpuResumeTest,
                         ::testing::Values("Sgd", "Accumulation", "Stage1", "Stage2", "Stage3", "Offload3",
                                           "Fp16Overflows", "Bf16", "Ema", "PowerSgd", "SyncBatchNorm", "Dropout",
                                           "Captured", "CapturedFp16", "CapturedDropout", "PostLocal", "Separate",
                                           "Stochastic", "Muon"),
                         [](const auto& test) { return test.param; });

}  // namespace resume_test
}  // namespace lockstep
