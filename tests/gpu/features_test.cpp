// SPDX-License-Identifier: BSD-3-Clause
// Trainings that communicate in forward, compress gradients or return memory, beside the same trainings on the CPU.
#include <cmath>
#include <ostream>

#include "gpu_test.hpp"
#include "multirank/engine/small_run.hpp"

namespace lockstep::engine {
namespace features_test {

struct Feature {
  const char* name;
  Settings settings;
  double tolerance;  ///< relative, of losses

  friend std::ostream& operator<<(std::ostream& out, const Feature& feature) { return out << feature.name; }
};

// float64: what differs is the order of additions. Captured steps have float32 learning rates.
constexpr double kOrder = 1e-10;
constexpr double kCaptured = 1e-6;
// Gradients are rounded to 16 bits on the CPU and on the GPU, and added in other orders.
constexpr double kRounded = 1e-2;

class GpuFeaturesTest : public GpuTest, public ::testing::WithParamInterface<Feature> {
 protected:
  std::vector<double> losses(const char* device) {
    const Settings common = {{"train.precision", "fp64"}, {"run.device", device}, {"data.workers", "0"}};
    SmallRun run(world_, with(with(kTwelveSteps, common), GetParam().settings));
    for (auto& [priority, hook] : make_hooks(run.sections, builtin_registry().hooks)) {
      run.trainer.add_hook(priority, std::move(hook));
    }
    run.trainer.train();
    return run.losses;
  }
};

TEST_P(GpuFeaturesTest, HasTheLossesOfTheCpu) {
  const std::vector<double> on_gpu = losses("cuda");
  const std::vector<double> on_cpu = losses("cpu");
  EXPECT_EQ(on_cpu.size(), 12U);
  EXPECT_EQ(on_gpu.size(), on_cpu.size());
  EXPECT_LT(on_cpu.back(), on_cpu.front());
  for (std::size_t i = 0; i < std::min(on_gpu.size(), on_cpu.size()); ++i) {
    EXPECT_NEAR(on_gpu[i], on_cpu[i], GetParam().tolerance * std::abs(on_cpu[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Features, GpuFeaturesTest,
    ::testing::Values(
        Feature{"SyncBatchNorm", {{"model.norm", "batch"}, {"ddp.sync_batch_norm", "true"}}, kOrder},
        Feature{"BroadcastBuffers", {{"model.norm", "batch"}, {"ddp.buffers", "broadcast"}}, kOrder},
        Feature{"Fp16Hook", {{"ddp.comm_hook", "fp16"}}, kRounded},
        Feature{"Bf16Hook", {{"ddp.comm_hook", "bf16"}}, kRounded},
        Feature{"PowerSgd",
                {{"ddp.comm_hook", "powersgd"}, {"ddp.powersgd_start_step", "3"}, {"optim.name", "sgd"}},
                kCaptured},
        Feature{"Accumulation", {{"train.micro_batch", "1"}}, kOrder},
        Feature{"Recompute", {{"model.recompute", "hidden*"}}, kOrder},
        Feature{"PostLocal", {{"strategy.post_local", "2:all"}, {"strategy.post_local_begin", "4"}}, kOrder},
        Feature{"EmptyCache", {{"train.hooks", "empty_cache,every=2"}}, kOrder},
        Feature{
            "CapturedEmptyCache", {{"train.hooks", "empty_cache,every=5"}, {"run.cuda_graphs", "true"}}, kCaptured}),
    [](const auto& test) { return test.param.name; });

}  // namespace features_test
}  // namespace lockstep::engine
