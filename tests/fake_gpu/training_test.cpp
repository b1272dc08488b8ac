// SPDX-License-Identifier: BSD-3-Clause
// Whole runs of the trainer on the fake GPU, beside the same runs on the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "fake_run.hpp"
#include "report/metrics_reader.hpp"
#include "support/archives.hpp"

namespace lockstep {
namespace fake_gpu_training_test {

using testing::Outcome;

std::vector<double> losses_of(const std::string& run) {
  std::vector<double> losses;
  for (const auto& [step, loss] : report::read_series(run + "/metrics.jsonl", "loss")) losses.push_back(loss);
  return losses;
}

struct Training {
  std::string name;
  std::string options;
  double tolerance;  ///< relative; 0 = each loss has the bits of the CPU's
  std::string variables = "";
};

// float64: what differs is the order of additions. Captured steps have float32 learning rates.
constexpr double kOrder = 1e-14;
constexpr double kCaptured = 1e-7;
// The fake GPU rounds a 16-bit product after its sum, as a GPU does, the CPU also before; over 12 steps at this rate.
constexpr double kSixteenBits = 0.01;

class FakeGpuTrainingTest : public ::testing::TestWithParam<Training> {
 protected:
  void expect_losses_of_the_cpu(int ranks) const {
    const testing::TemporaryFolder folder;
    const std::string options = testing::kFakeRun + GetParam().options + " --run.dir=";
    const std::string& variables = GetParam().variables;
    const Outcome on_fake =
        testing::run_on_fake_gpu(ranks, options + folder.path("fake") + " --run.device=cuda", variables);
    ASSERT_EQ(on_fake.exit_code, 0) << on_fake.output;
    const Outcome on_cpu =
        testing::run_ranks(ranks, options + folder.path("cpu") + " --run.device=cpu", 120, variables);
    ASSERT_EQ(on_cpu.exit_code, 0) << on_cpu.output;
    EXPECT_EQ(on_fake.output.find("steps are not captured"), std::string::npos) << on_fake.output;
    const std::vector<double> expected = losses_of(folder.path("cpu"));
    const std::vector<double> losses = losses_of(folder.path("fake"));
    ASSERT_EQ(losses.size(), expected.size());
    ASSERT_EQ(losses.size(), 12U);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], expected[i], GetParam().tolerance * std::abs(expected[i])) << i;
    }
    EXPECT_NE(testing::read_file(folder / "fake/env.json").find("\"gpus\": \"fake GPU\""), std::string::npos);
    EXPECT_EQ(testing::read_file(folder / "cpu/env.json").find("gpus"), std::string::npos);
  }
};

TEST_P(FakeGpuTrainingTest, OneRankHasTheLossesOfTheCpu) { expect_losses_of_the_cpu(1); }
TEST_P(FakeGpuTrainingTest, TwoRanksHaveTheLossesOfTheCpu) { expect_losses_of_the_cpu(2); }

INSTANTIATE_TEST_SUITE_P(
    Runs, FakeGpuTrainingTest,
    ::testing::Values(
        // At this level of processors the CPU has no kernels of Lockstep's own, which round in another order.
        // The libraries are lowered, too: a test at a lower level passes on limits of its own.
        Training{"Bits", "--optim.name=sgd --optim.momentum=0.9", 0,
                 "LOCKSTEP_CPU=generic ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41"},
        Training{"Ddp", "--train.precision=fp64 --model.name=cnn --train.clip_grad=norm:1", kOrder},
        Training{"Stage1", "--train.precision=fp64 --strategy.name=sharded --strategy.stage=1", kOrder},
        Training{"Stage2", "--train.precision=fp64 --strategy.name=sharded --strategy.stage=2", kOrder},
        Training{"Stage3", "--train.precision=fp64 --strategy.name=sharded --strategy.stage=3", kOrder},
        Training{"Captured", "--train.precision=fp64 --run.compile=true", kCaptured},
        Training{"Fp16", "--train.precision=fp16", kSixteenBits},
        Training{"Bf16", "--train.precision=bf16", kSixteenBits}),
    [](const auto& training) { return training.param.name; });

// The state that is copied beside the training is that of its step, in every order in which streams may run.
TEST(FakeGpuTest, CheckpointsAreThoseOfTheCpu) {
  const testing::TemporaryFolder folder;
  const std::string level = "LOCKSTEP_CPU=generic ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 ";
  const std::string options =
      testing::kFakeRun + "--optim.name=sgd --optim.momentum=0.9 --ckpt.every_steps=4 --ckpt.keep_last=9 --run.dir=";
  const Outcome on_cpu = testing::run_ranks(2, options + folder.path("cpu") + " --run.device=cpu", 120, level);
  ASSERT_EQ(on_cpu.exit_code, 0) << on_cpu.output;
  for (const std::string schedule : {"threads", "lazy"}) {
    SCOPED_TRACE(schedule);
    const std::string variables = level + "FAKE_GPU_DELAY_US=200 FAKE_GPU_SCHEDULE=" + schedule;
    const Outcome run = testing::run_on_fake_gpu(2, options + folder.path(schedule) + " --run.device=cuda", variables);
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
  const Outcome version = testing::run_on_fake_gpu(1, " --version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_NE(version.output.find("\ngpu fake GPU\n"), std::string::npos) << version.output;
}

TEST(FakeGpuTest, AProgramThatDoesNotNameItsFolderDoesNotFindIt) {
  const std::string trainer = testing::trainer_program();
  const Outcome version = testing::run_shell(trainer + " --version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.output.find("fake GPU"), std::string::npos) << version.output;
  // The loader does not search there, wherever it finds the libraries.
  const Outcome search =
      testing::run_shell("LD_DEBUG=libs LD_PRELOAD=lockstep_gpu.so:libcuda.so.1 " + trainer + " --version");
  EXPECT_NE(search.output.find("find library=lockstep_gpu.so"), std::string::npos) << search.output;
  EXPECT_EQ(search.output.find("/fake_gpu"), std::string::npos) << search.output;
}

TEST(FakeGpuTest, ACommandWithoutItsLibrariesIsRefused) {
  const Outcome refused = testing::run_shell("LOCKSTEP_BINARY_DIR=/nowhere " + testing::on_fake_gpu() + "true");
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
  Outcome outcome;
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
  const Outcome same = run("--train.max_steps=8 --run.tf32=none --resume=must");
  EXPECT_EQ(same.exit_code, 0) << same.output;
  EXPECT_EQ(same.output.find("run.tf32"), std::string::npos) << same.output;
  const Outcome other = run("--train.max_steps=12 --resume=must");
  EXPECT_EQ(other.exit_code, 0) << other.output;
  EXPECT_NE(other.output.find("the products in TF32 (run.tf32) are now convolutions and were none"), std::string::npos)
      << other.output;
}

TEST(FakeGpuTest, ABindingToOneCoreIsWorthAWarning) {
  const testing::TemporaryFolder folder;
  const std::string command = testing::on_fake_gpu() + testing::trainer_program() + testing::kFakeRun +
                              "--run.device=cuda --train.max_steps=2 --run.dir=";
  const std::string warning = " is bound to 1 core, which its threads (steps, backward, NCCL, loading) share";
  const Outcome bound = testing::run_shell("taskset -c 0 " + testing::mpirun_command(1) +
                                           " env OMPI_MCA_orte_bound_at_launch=1 " + command + folder.path("bound"));
  EXPECT_EQ(bound.exit_code, 0) << bound.output;
  EXPECT_EQ(count(bound.output, warning), 1) << bound.output;
  const Outcome free = testing::run_shell(testing::mpirun_command(1) + " " + command + folder.path("free"));
  EXPECT_EQ(free.exit_code, 0) << free.output;
  EXPECT_EQ(count(free.output, warning), 0) << free.output;
}

}  // namespace fake_gpu_training_test
}  // namespace lockstep
