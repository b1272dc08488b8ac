// SPDX-License-Identifier: BSD-3-Clause
// Steps that are captured as a CUDA graph, compared with eager ones.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>

#include "gpu_test.hpp"
#include "multirank/engine/small_run.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace captured_step_test {

/// Notes the wall time of every step.
class TimingHook : public Hook {
 public:
  explicit TimingHook(std::vector<double>& milliseconds) : milliseconds_(&milliseconds) {}
  void after_step(RunView&, const StepReport& report) override { milliseconds_->push_back(1e3 * report.seconds); }

 private:
  std::vector<double>* milliseconds_;
};

/// A text of 65 characters in no order.
std::string letters(std::size_t count) {
  std::string text(count, ' ');
  std::uint32_t state = 1;
  for (char& letter : text) {
    state = state * 1664525 + 1013904223;
    letter = static_cast<char>('0' + (state >> 16) % 65);
  }
  return text;
}

class GpuCapturedStepTest : public GpuTest {
 protected:
  struct Trained {
    std::vector<double> losses;
    std::vector<at::Tensor> parameters;
    double median_ms = 0;  // median of the second half of the steps
  };

  Trained train(const Settings& settings, bool compiles) const {
    SmallRun run(world_, with(settings, {{"run.device", "cuda"}, {"run.compile", compiles ? "true" : "false"}}));
    std::vector<double> milliseconds;
    run.trainer.add_hook(Priority::lowest, std::make_unique<TimingHook>(milliseconds));
    run.trainer.train();
    Trained result{.losses = run.losses, .parameters = {}};
    for (const at::Tensor& parameter : run.strategy.model().model().parameters()) {
      result.parameters.push_back(parameter.detach().cpu());
    }
    const auto half = milliseconds.begin() + std::ssize(milliseconds) / 2;
    std::nth_element(half, half + (milliseconds.end() - half) / 2, milliseconds.end());
    result.median_ms = *(half + (milliseconds.end() - half) / 2);
    return result;
  }
};

// Numbers of the host and of the device are rounded alike but for the learning rate of fused kernels, which is float32.
TEST_F(GpuCapturedStepTest, TrainsAsEagerStepsDo) {
  const Settings common = {{"train.max_epochs", "0"}, {"train.max_steps", "30"}, {"data.workers", "0"}};
  const std::vector<Settings> all = {
      {{"optim.name", "sgd"}, {"optim.lr", "0.01"}, {"optim.momentum", "0.9"}, {"train.clip_grad", "norm:1"}},
      {{"optim.name", "adamw"}, {"model.dropout", "0.2"}, {"sched.rule", "cosine"}, {"model.name", "mlp"}},
      {{"optim.name", "nadam"}, {"ddp.buffers", "broadcast"}, {"model.name", "resnet18"}, {"train.max_steps", "10"}},
      {{"optim.name", "lamb"}, {"train.precision", "bf16"}},
      {{"optim.name", "adamw"}, {"train.precision", "fp16"}, {"train.init_scale", "1e8"}},
      {{"optim.name", "muon"}, {"train.nonfinite", "skip"}},
      {{"loss.ignore_index", "0"}, {"loss.class_weights", "1,2,3,4,5,0.5,1,1,2,1"}, {"optim.name", "sgd"}}};
  for (const Settings& more : all) {
    SCOPED_TRACE(more.front().second);
    const Settings settings = with(common, more);
    const Trained eager = train(settings, false);
    const Trained captured = train(settings, true);
    ASSERT_EQ(captured.losses.size(), eager.losses.size());
    for (std::size_t i = 0; i < eager.losses.size(); ++i) {
      EXPECT_NEAR(captured.losses[i], eager.losses[i], 0.02 * std::abs(eager.losses[i]) + 1e-3) << i;
    }
  }
}

// tools/gpu_test reads these lines and compares them with torch DDP and torch.compile.
TEST_F(GpuCapturedStepTest, StepTimesOfGptAndResnet) {
  const Settings common = {{"train.max_epochs", "0"}, {"train.max_steps", "60"}};
  const Settings resnet = {{"model.name", "resnet18"}, {"train.global_batch_size", "128"}};
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path("text.txt")) << letters(1 << 20);
  const Settings gpt = {{"model.name", "gpt"},     {"data.name", "text"},   {"data.path", folder.path("text.txt")},
                        {"data.block", "256"},     {"model.layers", "6"},   {"model.heads", "6"},
                        {"model.features", "384"}, {"optim.name", "adamw"}, {"train.global_batch_size", "64"}};
  for (const auto& [name, model] : {std::pair("resnet18", resnet), std::pair("gpt", gpt)}) {
    for (const char* const precision : {"fp32", "bf16"}) {
      const Settings settings = with(with(common, model), {{"train.precision", precision}});
      const Trained eager = train(settings, false);
      const Trained captured = train(settings, true);
      if (world_.is_root()) {
        std::printf("step %s %s ranks=%d eager_ms=%.3f captured_ms=%.3f\n", name, precision, world_.size(),
                    eager.median_ms, captured.median_ms);
      }
    }
  }
}

}  // namespace captured_step_test
}  // namespace lockstep::engine
