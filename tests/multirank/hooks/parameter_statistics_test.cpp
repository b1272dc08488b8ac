// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "hooked_run.hpp"
#include "parallel/store/parameter_store.hpp"

namespace lockstep::engine {
namespace parameter_statistics_test {

class ParameterStatisticsTest : public ::testing::Test {
 protected:
  /// head.bias: 3, -4, then zeros; all others 0.5.
  static void fill(WrappedModel& model) {
    parallel::ParameterStore& store = model.wrapper->store();
    store.write_whole([&] {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < store.size(); ++i) {
        store.parameter(i).tensor.fill_(store.parameter(i).name == "head.bias" ? 0 : 0.5);
        if (store.parameter(i).name != "head.bias") continue;
        store.parameter(i).tensor[0] = 3;
        store.parameter(i).tensor[1] = -4;
      }
    });
  }

  double latest(Trainer& trainer, const std::string& name) const {
    return trainer.view().events.history(name).latest().value;
  }

  mpi::Communicator world_ = mpi::Communicator::world();
};

TEST_F(ParameterStatisticsTest, AreThoseOfEachParameter) {
  for (const std::string stage : {"0", "3"}) {
    Settings layout;
    if (stage != "0") layout = {{"strategy.name", "sharded"}, {"strategy.stage", stage}};
    HookedRun run(world_, with_hook("parameter_statistics,every=10,by=parameter,bins=7", layout));
    run.trainer.view().events.keep_pictures(100);
    fill(run.model);
    StepReport report;
    report.progress.step = 20;
    run.hook().after_step(run.trainer.view(), report);
    report.progress.step = 25;  // not due
    run.hook().after_step(run.trainer.view(), report);
    if (!world_.is_root()) continue;
    const std::string bias = "parameters/head.bias/";  // 10 elements
    EXPECT_EQ(latest(run.trainer, bias + "norm"), 5);
    EXPECT_DOUBLE_EQ(latest(run.trainer, bias + "mean"), -0.1);
    EXPECT_DOUBLE_EQ(latest(run.trainer, bias + "std"), std::sqrt(2.5 - 0.01));
    EXPECT_EQ(latest(run.trainer, bias + "max"), 4);
    EXPECT_EQ(latest(run.trainer, bias + "zeros"), 0.8);
    EXPECT_EQ(latest(run.trainer, "parameters/head.weight/std"), 0);
    EXPECT_EQ(run.trainer.view().events.history(bias + "norm").size(), 1U);
    EXPECT_EQ(run.trainer.view().events.history(bias + "norm").latest().step, 20);
    const std::vector<Histogram> histograms = run.trainer.view().events.take_histograms();
    ASSERT_EQ(histograms.size(), 4U);
    EXPECT_EQ(histograms.back().name, "parameters/head.bias");
    EXPECT_EQ(histograms.back().step, 20);
    EXPECT_EQ(histograms.back().count, 10);
    EXPECT_EQ(histograms.back().counts.size(), 7U);
  }
}

TEST_F(ParameterStatisticsTest, OrOfAllTogether) {
  HookedRun run(world_, with_hook("parameter_statistics,every=10"));
  EXPECT_FALSE(run.hook().reads().gradients);
  fill(run.model);
  StepReport report;
  report.progress.step = 10;
  run.hook().after_step(run.trainer.view(), report);
  if (!world_.is_root()) return;
  const double others = 784 * 16 + 16 + 16 * 10;
  const double all = others + 10;
  EXPECT_DOUBLE_EQ(latest(run.trainer, "parameters/norm"), std::sqrt(0.25 * others + 25));
  EXPECT_DOUBLE_EQ(latest(run.trainer, "parameters/mean"), (0.5 * others - 1) / all);
  EXPECT_DOUBLE_EQ(latest(run.trainer, "parameters/zeros"), 8 / all);
  EXPECT_EQ(run.trainer.view().events.latest(1).size(), 5U);
}

TEST_F(ParameterStatisticsTest, GradientsAreWithoutTheLossScale) {
  HookedRun run(world_, with_hook("parameter_statistics,every=1,gradients=true"));
  EXPECT_TRUE(run.hook().reads().gradients);
  const parallel::ParameterStore& store = run.model.wrapper->store();
  for (std::size_t i = 0; i < store.size(); ++i) {
    const at::Tensor& tensor = store.parameter(i).tensor;
    if (store.parameter(i).name == "head.bias") tensor.mutable_grad() = at::full_like(tensor.detach(), 2 * 1024);
  }
  LastBatch batch;
  batch.loss_scale = 1024;
  run.hook().on_backward(run.trainer.view(), batch);
  run.model.wrapper->store().drop_gradients();
  if (!world_.is_root()) return;
  EXPECT_DOUBLE_EQ(latest(run.trainer, "gradients/norm"), 2 * std::sqrt(10));
  EXPECT_EQ(latest(run.trainer, "gradients/max"), 2);
  EXPECT_EQ(run.trainer.view().events.history("gradients/max").latest().step, 1);
  EXPECT_EQ(run.trainer.view().events.step(), 0);
}

}  // namespace parameter_statistics_test
}  // namespace lockstep::engine
