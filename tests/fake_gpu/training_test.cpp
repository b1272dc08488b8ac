// SPDX-License-Identifier: BSD-3-Clause
// Whole runs of the trainer on the fake GPU: their checkpoints, reports and remarks. runs_test.cpp compares losses.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "fake_run.hpp"
#include "report/files/metrics.hpp"
#include "support/archives.hpp"

namespace lockstep {
namespace fake_gpu_training_test {

using testing::ProgramResult;

std::vector<double> losses_of(const std::string& run) {
  std::vector<double> losses;
  for (const auto& [step, loss] : report::read_series(run + "/metrics.jsonl", "loss")) losses.push_back(loss);
  return losses;
}

// The state that is copied beside the training is that of its step, in every order in which streams may run.
TEST(FakeGpuTest, CheckpointsAreThoseOfTheCpu) {
  const testing::TemporaryFolder folder;
  const std::string options =
      testing::kFakeRun + "--optim.name=sgd --optim.momentum=0.9 --ckpt.every=4 --ckpt.keep_last=9 --run.dir=";
  const ProgramResult on_cpu =
      testing::run_ranks(2, options + folder.path("cpu") + " --run.device=cpu", 120, testing::kKernelsOfTheFake);
  ASSERT_EQ(on_cpu.exit_code, 0) << on_cpu.output;
  for (const std::string schedule : {"threads", "lazy"}) {
    SCOPED_TRACE(schedule);
    const std::string variables = testing::kKernelsOfTheFake + "FAKE_GPU_DELAY_US=200 FAKE_GPU_SCHEDULE=" + schedule;
    const ProgramResult run =
        testing::run_on_fake_gpu(2, options + folder.path(schedule) + " --run.device=cuda", variables);
    ASSERT_EQ(run.exit_code, 0) << run.output;
    for (const std::int64_t step : {4, 8, 12}) {
      const auto read = [&](const std::string& name) {
        return checkpoints::read(checkpoints::checkpoint_of(folder.path(name + "/ckpt"), step));
      };
      EXPECT_EQ(testing::differences(read(schedule), read("cpu")), "") << step;
    }
  }
}

TEST(FakeGpuTest, TheVersionNamesIt) {
  const ProgramResult version = testing::run_on_fake_gpu(1, " --version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_NE(version.output.find("\ngpu fake GPU\n"), std::string::npos) << version.output;
}

TEST(FakeGpuTest, AProgramThatDoesNotNameItsFolderDoesNotFindIt) {
  const std::string trainer = testing::trainer_program();
  const ProgramResult version = testing::run_shell(trainer + " --version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.output.find("fake GPU"), std::string::npos) << version.output;
  // The loader does not search there, wherever it finds the libraries.
  const ProgramResult search =
      testing::run_shell("LD_DEBUG=libs LD_PRELOAD=lockstep_gpu.so:libcuda.so.1 " + trainer + " --version");
  EXPECT_NE(search.output.find("find library=lockstep_gpu.so"), std::string::npos) << search.output;
  EXPECT_EQ(search.output.find("/fake_gpu"), std::string::npos) << search.output;
}

TEST(FakeGpuTest, ACommandWithoutItsLibrariesIsRefused) {
  const ProgramResult refused = testing::run_shell("LOCKSTEP_BINARY_DIR=/nowhere " + testing::on_fake_gpu() + "true");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.output.find("built in /nowhere/fake_gpu"), std::string::npos) << refused.output;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t position = text.find(part); position != std::string::npos; position = text.find(part, position + 1))
    ++found;
  return found;
}

/// A run of two ranks in a folder of its own.
struct FakeRun {
  explicit FakeRun(const std::string& options, const std::string& variables = "")
      : outcome(testing::run_on_fake_gpu(2, arguments(options), variables)) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  }
  std::string arguments(const std::string& options) const {
    return testing::kFakeRun + "--run.device=cuda " + options + " --run.dir=" + folder.path("run");
  }
  std::string file(const std::string& name) const { return testing::read_file(folder / ("run/" + name)); }

  testing::TemporaryFolder folder;
  ProgramResult outcome;
};

TEST(FakeGpuTest, TheReportOfTimesIsThatOfTheGpu) {
  const FakeRun plain("--train.precision=fp64");
  const FakeRun timed("--train.precision=fp64 --ddp.report=true", "FAKE_GPU_DELAY_US=200");
  EXPECT_EQ(count(timed.outcome.output, " ms on the GPU: compute "), 1) << timed.outcome.output;
  EXPECT_EQ(count(timed.outcome.output, "times of the GPU; not measured: "), 1) << timed.outcome.output;
  EXPECT_EQ(timed.outcome.output.find("(a step of 0.00 ms"), std::string::npos) << timed.outcome.output;
  EXPECT_EQ(losses_of(timed.folder.path("run")), losses_of(plain.folder.path("run")));
}

// No CUPTI is here: the trace is that of the host.
TEST(FakeGpuTest, AProfileWithoutCuptiEndsInAWarning) {
  const FakeRun run("--train.hooks=profiler,from_step=4,steps=2");
  EXPECT_GE(count(run.outcome.output, "profiler: the trace shows the host only, not the GPU: "), 1)
      << run.outcome.output;
  EXPECT_NE(run.file("trace.json").find("\"aten::"), std::string::npos);
}

TEST(FakeGpuTest, AResumedRunReportsOtherProductsInTf32) {
  const testing::TemporaryFolder folder;
  const auto run = [&folder](const std::string& options) {
    return testing::run_on_fake_gpu(
        1, testing::kFakeRun + "--run.device=cuda --run.dir=" + folder.path("run") + " " + options);
  };
  EXPECT_EQ(run("--train.max_steps=4 --run.tf32=none").exit_code, 0);
  const ProgramResult same = run("--train.max_steps=8 --run.tf32=none --resume=must");
  EXPECT_EQ(same.exit_code, 0) << same.output;
  EXPECT_EQ(same.output.find("run.tf32"), std::string::npos) << same.output;
  const ProgramResult other = run("--train.max_steps=12 --resume=must");
  EXPECT_EQ(other.exit_code, 0) << other.output;
  EXPECT_NE(other.output.find("the products in TF32 (run.tf32) are now convolutions and were none"), std::string::npos)
      << other.output;
}

TEST(FakeGpuTest, ABindingToOneCoreIsWorthAWarning) {
  const testing::TemporaryFolder folder;
  const std::string command = testing::on_fake_gpu() + testing::trainer_program() + testing::kFakeRun +
                              "--run.device=cuda --train.max_steps=2 --run.dir=";
  const std::string warning = " is bound to 1 core, which its threads (steps, backward, NCCL, loading) share";
  const ProgramResult bound =
      testing::run_shell("taskset -c 0 " + testing::mpirun_command(1) + " env OMPI_MCA_orte_bound_at_launch=1 " +
                         command + folder.path("bound"));
  EXPECT_EQ(bound.exit_code, 0) << bound.output;
  EXPECT_EQ(count(bound.output, warning), 1) << bound.output;
  const ProgramResult free = testing::run_shell(testing::mpirun_command(1) + " " + command + folder.path("free"));
  EXPECT_EQ(free.exit_code, 0) << free.output;
  EXPECT_EQ(count(free.output, warning), 0) << free.output;
}

}  // namespace fake_gpu_training_test
}  // namespace lockstep
