// SPDX-License-Identifier: BSD-3-Clause
// Steps that are captured as a CUDA graph, compared with eager ones.
#include <ATen/DeviceAccelerator.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>

#include "fake_functions.hpp"
#include "gpu_test.hpp"
#include "multirank/engine/small_run.hpp"
#include "parallel/store/reducer.hpp"
#include "support/sampling.hpp"
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

using fake_gpu::Counters;

/// Counts what each step costs, until the next one begins.
class CostHook : public Hook {
 public:
  explicit CostHook(std::vector<Counters>& steps) : Hook(HookReads::nothing()), steps_(&steps) {}
  void before_step(RunView& run) override {
    if (!fake_gpu::is_here()) return;
    const Counters now = fake_gpu::counted();
    if (run.progress.step > 0) steps_->push_back(now - before_);
    before_ = now;
    fake_gpu::note_step();
  }

 private:
  std::vector<Counters>* steps_;
  Counters before_;
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
    std::vector<at::Tensor> parameters;  // and buffers
    std::vector<Counters> costs;         // costs of all steps but the last, on the fake GPU
    std::size_t buckets = 0;
    double median_ms = 0;  // median of the second half of the steps
  };

  /// @param is_timed  the host then waits for each step
  Trained train(const Settings& settings, bool compiles, bool is_timed = false) const {
    SmallRun run(world_, with(settings, {{"run.device", "cuda"}, {"run.cuda_graphs", compiles ? "true" : "false"}}));
    std::vector<double> milliseconds;
    std::vector<Counters> costs;
    if (is_timed) run.trainer.add_hook(Priority::lowest, std::make_unique<TimingHook>(milliseconds));
    run.trainer.add_hook(Priority::highest, std::make_unique<CostHook>(costs));
    run.trainer.train();
    parallel::DistributedDataParallel& wrapper = *run.model.wrapper;
    Trained result{.losses = run.losses,
                   .parameters = {},
                   .costs = std::move(costs),
                   .buckets = report_of(wrapper.reducer()).buckets.size()};
    for (const at::Tensor& tensor : wrapper.model().parameters()) result.parameters.push_back(tensor.detach().cpu());
    for (const at::Tensor& tensor : wrapper.model().buffers()) result.parameters.push_back(tensor.detach().cpu());
    if (!is_timed) return result;
    const auto half = milliseconds.begin() + std::ssize(milliseconds) / 2;
    std::nth_element(half, half + (milliseconds.end() - half) / 2, milliseconds.end());
    result.median_ms = *(half + (milliseconds.end() - half) / 2);
    return result;
  }
};

/// Learning rates that float32 represents, so that eager and captured steps have the same bits.
const Settings kExact = {{"train.max_steps", "12"}, {"train.global_batch_size", "12"}, {"data.workers", "0"},
                         {"run.threads", "1"},      {"run.peak_flops", "0"},           {"optim.name", "sgd"},
                         {"optim.momentum", "0.5"}, {"optim.lr", "0.015625"}};
const Settings kMlp = with(kExact, {{"data.train_size", "96"}, {"model.name", "mlp"}, {"model.hidden", "16"}});
const Settings kCnn = with(kExact, {{"data.train_size", "96"}, {"model.name", "cnn"}});

class GpuExactStepTest : public GpuCapturedStepTest {
 protected:
  /// Captured steps train to the bits of eager ones, with the same collectives, and launch graphs.
  void expect_exact(const Settings& settings) const {
    const Trained eager = train(settings, false);
    const Trained captured = train(settings, true);
    if (!fake_gpu::is_here()) return;  // kernels of a GPU can add in any order
    EXPECT_EQ(captured.losses, eager.losses);
    EXPECT_EQ(captured.parameters.size(), eager.parameters.size());
    for (std::size_t i = 0; i < eager.parameters.size(); ++i) {
      EXPECT_TRUE(at::equal(captured.parameters[i], eager.parameters[i])) << i;
    }
    EXPECT_LT(captured.costs.back().launches, eager.costs.back().launches / 2);
    EXPECT_EQ(captured.costs.back().nccl_calls, eager.costs.back().nccl_calls);
    EXPECT_EQ(captured.costs.back().synchronizations, 0);
    EXPECT_EQ(captured.costs.back().pageable_copies, 0);
  }
};

TEST_F(GpuExactStepTest, AccumulatedGradients) {
  expect_exact(with(kMlp, {{"train.micro_batch", "2"}, {"model.dropout", "0.2"}}));
  expect_exact(with(kCnn, {{"train.micro_batch", "4"}, {"ddp.buffers", "broadcast"}}));
}

TEST_F(GpuExactStepTest, SynchronizedBatchNorm) {
  const Settings norm = with(kMlp, {{"model.norm", "batch"},
                                    {"model.hidden", "16,16"},
                                    {"ddp.sync_batch_norm", "true"},
                                    {"ddp.bucket_mb", "0.0019073486328125"}});
  expect_exact(norm);
  expect_exact(with(norm, {{"train.micro_batch", "4"}}));
}

TEST_F(GpuExactStepTest, CommunicationHooks) {
  for (const char* const hook : {"fp16", "bf16", "noop"}) {
    SCOPED_TRACE(hook);
    expect_exact(with(kMlp, {{"ddp.comm_hook", hook}, {"ddp.bucket_mb", "0.019073486328125"}}));
  }
}

// Their work changes in the fifth step, after which steps run eagerly until the next recording.
TEST_F(GpuExactStepTest, HooksThatBeginLater) {
  expect_exact(with(kMlp, {{"ddp.comm_hook", "powersgd"}, {"ddp.powersgd_start_step", "4"}}));
  expect_exact(
      with(kMlp,
           {{"strategy.post_local", "2:all"}, {"strategy.post_local_begin", "4"}, {"strategy.post_local_group", "1"}}));
}

// Backward draws the numbers of forward again, and those of the next step are others.
TEST_F(GpuExactStepTest, RecomputedBlocks) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path("text.txt")) << letters(1 << 14);
  const Settings gpt = with(kExact, {{"data.name", "text"},
                                     {"data.path", folder.path("text.txt")},
                                     {"data.block", "16"},
                                     {"model.name", "gpt"},
                                     {"model.depth", "2"},
                                     {"model.num_heads", "2"},
                                     {"model.embed_dim", "16"},
                                     {"model.dropout", "0.25"},
                                     {"model.recompute", "block*"}});
  expect_exact(gpt);
  expect_exact(with(gpt, {{"train.micro_batch", "2"}, {"ddp.comm_hook", "bf16"}}));
}

TEST_F(GpuExactStepTest, AllOfThemTogether) {
  expect_exact(with(kExact, {{"data.name", "synthetic"},
                             {"data.shape", "3,32,32"},
                             {"data.size", "192"},
                             {"data.classes", "4"},
                             {"model.name", "resnet18"},
                             {"model.width", "8"},
                             {"model.recompute", "layer*.*"},
                             {"train.max_steps", "8"},
                             {"train.micro_batch", "3"},
                             {"ddp.sync_batch_norm", "true"},
                             {"ddp.comm_hook", "fp16"}}));
}

// The graphs of a step use the same memory.
TEST_F(GpuExactStepTest, MicroBatchesShareTheMemoryOfTheirGraphs) {
  const auto peak_of = [&](int parts) {
    const std::string samples = std::to_string(parts * 96 * world_.size());
    const c10::DeviceIndex device = device_->torch().index();
    at::accelerator::emptyCache();
    at::accelerator::resetPeakStats(device);
    train(with(kCnn, {{"train.micro_batch", "96"},
                      {"train.global_batch_size", samples},
                      {"data.train_size", samples},
                      {"train.max_steps", "5"}}),
          true);
    return static_cast<double>(at::accelerator::getDeviceStats(device).reserved_bytes[0].peak);
  };
  const double one = peak_of(1);
  const double three = peak_of(3);
  EXPECT_LT(three, 1.5 * one);
}

TEST_F(GpuExactStepTest, AResnetThatSynchronizesItsNormsCostsNoWaits) {
  if (!fake_gpu::is_here()) GTEST_SKIP() << "only the fake GPU counts what a step costs";
  constexpr std::int64_t kNormLayers = 53;
  const Trained trained = train(with(kExact, {{"data.name", "synthetic"},
                                              {"data.shape", "3,64,64"},
                                              {"data.size", "64"},
                                              {"data.classes", "10"},
                                              {"model.name", "resnet50"},
                                              {"model.width", "8"},
                                              {"ddp.bucket_mb", "0.5"},
                                              {"ddp.sync_batch_norm", "true"},
                                              {"train.max_steps", "8"},
                                              {"train.global_batch_size", std::to_string(2 * world_.size())}}),
                                true);
  const auto buckets = static_cast<std::int64_t>(trained.buckets);
  for (std::size_t i = trained.costs.size() - 3; i < trained.costs.size(); ++i) {
    const Counters& step = trained.costs[i];
    EXPECT_EQ(step.synchronizations, 0);
    EXPECT_EQ(step.pageable_copies, 0);
    EXPECT_EQ(step.device_allocations, 0);
    EXPECT_EQ(step.device_frees, 0);
    EXPECT_LT(step.launches, 20);  // that of the graph, and copies; deterministic algorithms also fill new memory
    EXPECT_EQ(step.nccl_calls, world_.size() == 1 ? 0 : buckets + 2 * kNormLayers);
  }
}

// Numbers of the host and of the device are rounded alike but for the learning rate of fused kernels, which is float32.
// The fake GPU computes on the host: there models and batches are small.
TEST_F(GpuCapturedStepTest, TrainsAsEagerStepsDo) {
  const bool is_fake = fake_gpu::is_here();
  const Settings common = {
      {"train.max_steps", "30"}, {"data.workers", "0"}, {"train.global_batch_size", is_fake ? "12" : "48"}};
  const std::vector<Settings> all = {
      {{"optim.name", "sgd"}, {"optim.lr", "0.01"}, {"optim.momentum", "0.9"}, {"train.clip_norm", "1"}},
      {{"optim.name", "adamw"}, {"model.dropout", "0.2"}, {"sched.rule", "cosine"}, {"model.name", "mlp"}},
      {{"optim.name", "nadam"},
       {"ddp.buffers", "broadcast"},
       {"model.name", "resnet18"},
       {"model.width", is_fake ? "8" : "64"},
       {"train.max_steps", "10"}},
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
  const bool is_fake = fake_gpu::is_here();  // then the lines count, not the times
  const Settings common = {{"train.max_steps", is_fake ? "8" : "60"}};
  const Settings resnet = {{"model.name", "resnet18"},
                           {"model.width", is_fake ? "4" : "64"},
                           {"train.global_batch_size", is_fake ? "8" : "128"}};
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path("text.txt")) << letters(1 << 20);
  const Settings gpt = {{"model.name", "gpt"},
                        {"data.name", "text"},
                        {"data.path", folder.path("text.txt")},
                        {"data.block", is_fake ? "8" : "256"},
                        {"model.depth", is_fake ? "1" : "6"},
                        {"model.num_heads", "6"},
                        {"model.embed_dim", is_fake ? "12" : "384"},
                        {"optim.name", "adamw"},
                        {"train.global_batch_size", is_fake ? "8" : "64"}};
  for (const auto& [name, model] : {std::pair("resnet18", resnet), std::pair("gpt", gpt)}) {
    for (const char* const precision : {"fp32", "bf16"}) {
      const Settings settings = with(with(common, model), {{"train.precision", precision}});
      const Trained eager = train(settings, false, /*is_timed=*/true);
      const Trained captured = train(settings, true, /*is_timed=*/true);
      if (world_.is_root()) {
        std::printf("step %s %s ranks=%d eager_ms=%.3f captured_ms=%.3f\n", name, precision, world_.size(),
                    eager.median_ms, captured.median_ms);
      }
    }
  }
}

}  // namespace captured_step_test
}  // namespace lockstep::engine
