// SPDX-License-Identifier: BSD-3-Clause
// What saving, comparing replicas and offloading cost the host, on the fake GPU.
#include <lockstep/engine/hook.hpp>

#include <map>
#include <string>
#include <vector>

#include "engine/resume/run_state.hpp"
#include "engine/state/device_copies.hpp"
#include "fake_functions.hpp"
#include "fake_gpu/fake_gpu.hpp"
#include "gpu_test.hpp"
#include "multirank/engine/small_run.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace gpu_saving_costs_test {

using fake_gpu::Counters;

const Settings kOnGpu = with(kTwelveSteps, {{"run.device", "cuda"},
                                            {"data.workers", "0"},
                                            {"run.threads", "1"},
                                            {"run.peak_flops", "0"},
                                            {"ckpt.every", "never"}});

/// Notes what each step costs, until the next one begins.
class CostHook : public Hook {
 public:
  explicit CostHook(std::map<std::int64_t, Counters>& costs) : costs_(&costs) {}

  void before_step(RunView& run) override {
    (*costs_)[run.progress.step] = fake_gpu::counted() - begin_;
    fake_gpu::note_step();
    begin_ = fake_gpu::counted();
  }

 private:
  std::map<std::int64_t, Counters>* costs_;
  Counters begin_;
};

class GpuSavingCostsTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && !fake_gpu::is_here()) GTEST_SKIP() << "a GPU does not count";
  }

  /// One for each step, from 1.
  std::map<std::int64_t, Counters> costs_of(const Settings& settings) {
    const testing::TemporaryFolder mine;
    const std::string shared = world_.broadcast(mine.path());
    std::map<std::int64_t, Counters> costs;
    {
      SmallRun run(world_, with(kOnGpu, settings));
      run.trainer.add_hook(Priority::lowest, std::make_unique<CostHook>(costs));
      run.trainer.add_hook(run.checkpoint_hook(shared, "config"));
      run.trainer.train();
    }
    world_.barrier();
    return costs;
  }
};

// Only ranks that write copy the state, and no rank waits for copies: at most for the sums of its parameters.
TEST_F(GpuSavingCostsTest, ASaveWaitsForNothingButTheComparison) {
  SmallRun run(world_, kOnGpu);
  run.trainer.train();
  const int comparisons = world_.size() > 1 ? 1 : 0;
  DeviceCopies copies;
  capture(run.trainer, "", world_.is_root(), {}, &copies).await_arrival();
  const Counters before = fake_gpu::counted();
  const checkpoints::Archive archive = capture(run.trainer, "", world_.is_root(), {}, &copies);
  const Counters cost = fake_gpu::counted() - before;
  EXPECT_EQ(cost.pageable_copies, 0);
  EXPECT_EQ(cost.synchronizations + cost.late_waits, comparisons);
  EXPECT_LE(cost.host_allocations, comparisons);  // LibTorch may not know yet that the last one is free
  if (world_.is_root()) {
    EXPECT_GT(cost.host_reads, comparisons);
  } else {
    EXPECT_EQ(cost.host_reads, comparisons);
  }
  archive.await_arrival();
}

TEST_F(GpuSavingCostsTest, StepsBesideASaveCostWhatOthersDo) {
  const auto plain = costs_of({});
  const auto saving = costs_of({{"ckpt.every", "4"}});
  for (const std::int64_t step : {3, 4, 5, 6, 7, 8, 9, 10}) {
    const int comparisons = step % 4 == 0 && world_.size() > 1 ? 1 : 0;  // the save after this step
    EXPECT_EQ(saving.at(step).synchronizations, plain.at(step).synchronizations + comparisons) << step;
    EXPECT_EQ(saving.at(step).pageable_copies, plain.at(step).pageable_copies) << step;
    if (step <= 4) continue;  // the first save takes its memory
    EXPECT_LE(saving.at(step).host_allocations, comparisons) << step;
  }
}

// The gradients come to the host, and the parameters back, through page-locked memory.
TEST_F(GpuSavingCostsTest, OffloadingCopiesNothingPageable) {
  for (const char* const stage : {"1", "2", "3"}) {
    SCOPED_TRACE(std::string("stage ") + stage);
    const Settings sharded = {{"strategy.name", "sharded"}, {"strategy.stage", stage}, {"train.clip_norm", "1"}};
    const auto plain = costs_of(sharded);
    const auto offloaded = costs_of(with(sharded, {{"strategy.offload", "true"}}));
    for (const std::int64_t step : {3, 4, 5}) {
      EXPECT_LE(offloaded.at(step).pageable_copies, plain.at(step).pageable_copies) << step;
    }
  }
}

TEST_F(GpuSavingCostsTest, WithoutPageLockedMemoryOrdinaryMemoryIsUsed) {
  const at::Tensor values = at::rand({1000}, at::TensorOptions().dtype(at::kFloat).device(device_->torch()));
  DeviceCopies copies;
  copies.begin();
  // More than anything that LibTorch has in store.
  const at::Tensor large = values.repeat({32000});
  const auto plan =
      fake_gpu::found<void(const fake_gpu::FaultPlan&)>("_ZN8lockstep8fake_gpu10plan_faultERKNS0_9FaultPlanE");
  plan({.fault = fake_gpu::PlannedFault::host_memory, .occurrence = 1});
  const Counters before = fake_gpu::counted();
  const checkpoints::Array array = copies.queue(large, "values");
  EXPECT_EQ((fake_gpu::counted() - before).host_allocations, 0);
  copies.arrival()();
  EXPECT_TRUE(at::equal(tensor_over(array), large.cpu()));
}

}  // namespace gpu_saving_costs_test
}  // namespace lockstep::engine
