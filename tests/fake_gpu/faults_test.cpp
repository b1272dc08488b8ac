// SPDX-License-Identifier: BSD-3-Clause
// Runs on a fake GPU that fails, or is not what NCCL supports.
#include <gtest/gtest.h>

#include <string>

#include "fake_run.hpp"

namespace lockstep {
namespace fake_gpu_faults_test {

using testing::ProgramResult;

ProgramResult run(int ranks, const std::string& variables, const std::string& arguments) {
  const testing::TemporaryFolder folder;
  return testing::run_on_fake_gpu(ranks, testing::kFakeRun + arguments + " --run.dir=" + folder.path("run"), variables);
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t position = text.find(part); position != std::string::npos; position = text.find(part, position + 1))
    ++found;
  return found;
}

// 802 and 803 are how a driver answers that does not fit the GPU or its firmware.
TEST(FakeGpuFaultsTest, ABrokenDriverIsNotPassedByInSilence) {
  for (const std::string code : {"802", "803", "999"}) {
    const ProgramResult automatic = run(2, "FAKE_GPU_DRIVER=" + code, " --run.device=auto");
    EXPECT_EQ(automatic.exit_code, 0) << automatic.output;
    EXPECT_EQ(count(automatic.output,
                    "run.device=auto selects the CPU: rank 0: the GPU driver finds no GPU (error " + code + ": "),
              1)
        << automatic.output;
  }
  const ProgramResult wanted = run(1, "FAKE_GPU_DRIVER=802", " --run.device=cuda");
  EXPECT_EQ(wanted.exit_code, 2) << wanted.output;
  EXPECT_NE(wanted.output.find("run.device=cuda: the GPU driver finds no GPU (error 802: system not yet initialized)"),
            std::string::npos)
      << wanted.output;
}

TEST(FakeGpuFaultsTest, AMachineWithoutAGpuNeedsNoRemark) {
  const ProgramResult automatic = run(1, "FAKE_GPU_DRIVER=100", " --run.device=auto");
  EXPECT_EQ(automatic.exit_code, 0) << automatic.output;
  EXPECT_EQ(automatic.output.find("selects the CPU"), std::string::npos) << automatic.output;
}

TEST(FakeGpuFaultsTest, PartsOfOneGpuAreRefused) {
  const ProgramResult outcome = run(2, "FAKE_GPU_SLICES=2", " --run.device=cuda");
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  EXPECT_EQ(count(outcome.output, "ranks 0 and 1 have parts (MIG) of the same GPU ("), 1) << outcome.output;
}

/// The sentence and the description in the folder of the run.
void expect_out_of_memory(int ranks, const std::string& variables, const std::string& arguments) {
  SCOPED_TRACE(variables);
  const testing::TemporaryFolder folder;
  const ProgramResult outcome = testing::run_on_fake_gpu(
      ranks, testing::kFakeRun + arguments + " --run.device=cuda --run.dir=" + folder.path("run"), variables);
  EXPECT_EQ(outcome.exit_code, 7) << outcome.output;
  EXPECT_NE(outcome.output.find(" were requested"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("; reduce train.micro_batch"), std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.find("internal error"), std::string::npos) << outcome.output;
  std::string description;
  for (const std::string rank : {"00000", "00001"}) {
    description += testing::read_file(folder / ("run/logs/memory_" + rank + ".txt"));
  }
  EXPECT_NE(description.find("when it refused a request"), std::string::npos) << outcome.output;
  EXPECT_NE(description.find("used by tensors"), std::string::npos) << description;
}

// Parameters, gradients or the state of the optimizer do not fit.
TEST(FakeGpuFaultsTest, AGpuThatIsFullIsNamed) {
  for (const std::string megabytes : {"40", "64", "90"}) {
    expect_out_of_memory(2, "FAKE_GPU_MEMORY_MB=" + megabytes, "--model.hidden=2048,2048");
  }
}

TEST(FakeGpuFaultsTest, ARequestThatIsRefusedEndsAllRanks) {
  for (const std::string occurrence : {"1", "3"}) {
    expect_out_of_memory(2, "FAKE_GPU_FAULT=out_of_memory:" + occurrence + " FAKE_GPU_FAULT_RANK=1", "");
  }
  expect_out_of_memory(1, "FAKE_GPU_FAULT=out_of_memory:2", "");
}

// The watch of NCCL learns of it, too, and must not take it for an error of the communication.
TEST(FakeGpuFaultsTest, AKernelThatFailsIsNoErrorOfTheCommunication) {
  const ProgramResult outcome = run(2, "FAKE_GPU_FAULT=sticky:100 FAKE_GPU_FAULT_RANK=1", " --run.device=cuda");
  EXPECT_EQ(outcome.exit_code, 70) << outcome.output;
  EXPECT_NE(outcome.output.find("device-side assert triggered"), std::string::npos) << outcome.output;
}

}  // namespace fake_gpu_faults_test
}  // namespace lockstep
