// SPDX-License-Identifier: BSD-3-Clause
// How much is communicated, and when nothing is.
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "parallel/store/reducer.hpp"
#include "parallel_test.hpp"
#include "support/counting_collectives.hpp"

namespace lockstep::parallel {
namespace traffic_test {

using testing::CountingCollectives;

const std::vector<std::int64_t> kWidths = {3, 4, 2};

class TrafficTest : public ParallelTest {
 protected:
  TrafficTest() : counted_(make_collectives()) {}

  std::unique_ptr<DistributedDataParallel> wrap_counted(std::shared_ptr<models::Model> model,
                                                        const DdpOptions& options = {}) {
    return std::make_unique<DistributedDataParallel>(std::move(model), world_, counted_, options);
  }

  CountingCollectives counted_;
};

// Cases 43 and 89.
TEST_F(TrafficTest, AForwardWithoutGradientsCommunicatesNothing) {
  auto model = std::make_shared<Layers>(kWidths);
  model->register_buffer("level", torch::zeros({2}));
  const auto wrapper = wrap_counted(model, {.buffers = BufferMode::average});
  counted_.take_counts();
  const auto evaluate = [&] {
    const torch::NoGradGuard no_grad;
    const at::Tensor output = wrapper->forward(batch_of(rank(), 0, kWidths).input());
    EXPECT_FALSE(output.requires_grad());
  };
  evaluate();
  expect_gradients(*model, std::vector<at::Tensor>(4));
  EXPECT_EQ(counted_.take_counts().all(), 0);
  wrapper->forward(batch_of(rank(), 0, kWidths).input()).sum().backward();
  EXPECT_EQ(counted_.take_counts().all() > 0, size() > 1);
  evaluate();
  EXPECT_EQ(counted_.take_counts().all(), 0);
}

// Case 96.
TEST_F(TrafficTest, AStepOfOneBucketIsOneReduction) {
  if (size() == 1) GTEST_SKIP() << "one rank reduces nothing";
  auto model = std::make_shared<Layers>(kWidths);
  const auto wrapper = wrap_counted(model);
  for (int step = 0; step < 4; ++step) {
    counted_.take_counts();
    drop_gradients(*model);
    wrapper->forward(batch_of(rank(), step, kWidths).input()).sum().backward();
    const CountingCollectives::Counts counts = counted_.take_counts();
    EXPECT_EQ(counts.all_reduces, 1);
    EXPECT_EQ(counts.waits, 1);
    EXPECT_EQ(counts.buckets, step == 1 ? 1 : 0);  // the new buckets
    EXPECT_EQ(counts.all(), step == 1 ? 3 : 2);
  }
}

// Case 96: what the ranks of a host do together when they share the parameters.
TEST_F(TrafficTest, ASlicedStepIsOneReductionAndOneBarrier) {
  if (counted_.local_size() == 1) GTEST_SKIP() << "needs several ranks that share memory";
  auto model = std::make_shared<Layers>(kWidths);
  const auto wrapper = wrap_counted(model, {.shares_parameters = true});
  auto optimizer = make_optimizer(wrapper->parameters(), {{"name", "sgd"}});
  for (int step = 0; step < 4; ++step) {
    counted_.take_counts();
    wrapper->train_step(batch_of(rank(), step, kWidths), optimizer);
    const CountingCollectives::Counts counts = counted_.take_counts();
    EXPECT_EQ(counts.range_reductions, 1);
    EXPECT_EQ(counts.barriers, 1);
    EXPECT_EQ(counts.all(), step == 1 ? 3 : 2);
  }
}

// Case 45: and steps that only accumulate.
TEST_F(TrafficTest, AccumulatingCommunicatesNothing) {
  auto model = std::make_shared<Layers>(kWidths);
  model->register_buffer("level", torch::zeros({2}));
  const auto wrapper = wrap_counted(model, {.buffers = BufferMode::broadcast});
  auto optimizer = make_optimizer(wrapper->parameters(), {{"name", "sgd"}}, {.accumulation_steps = 3});
  for (int step = 0; step < 6; ++step) {
    counted_.take_counts();
    wrapper->train_step(batch_of(rank(), step, kWidths), optimizer);
    EXPECT_EQ(counted_.take_counts().all() > 0, step % 3 == 2 && size() > 1);
  }
}

// Case 108.
TEST_F(TrafficTest, OneRankHasNoHooksAndNoCollectives) {
  if (size() > 1) GTEST_SKIP() << "several ranks need them";
  auto model = std::make_shared<Layers>(kWidths);
  model->register_buffer("level", torch::zeros({2}));
  for (const bool has_static_graph : {false, true}) {
    counted_.take_counts();
    const auto wrapper = wrap_counted(model, {.reducer = {.has_static_graph = has_static_graph},
                                              .buffers = BufferMode::broadcast,
                                              .shares_parameters = true});
    EXPECT_EQ(counted_.name(), "self");
    for (const auto& parameter : model->parameters()) {
      EXPECT_TRUE(torch::autograd::impl::grad_accumulator(parameter)->post_hooks().empty());
    }
    counted_.take_counts();
    auto optimizer = make_optimizer(wrapper->parameters(), {{"name", "sgd"}}, {.clip = {.max_norm = 1}});
    const at::Tensor unused = model->layers[1]->weight.detach().clone();
    const at::Tensor used = model->layers[0]->weight.detach().clone();
    for (int step = 0; step < 3; ++step) {
      const at::Tensor loss = wrapper->run([&] { return model->run(0, batch_of(0, step, kWidths).input()).sum(); });
      optimizer.update_params(loss);  // an unused parameter is simply left alone
    }
    wrapper->synchronize_buffers();
    EXPECT_EQ(counted_.take_counts().all(), 0);
    EXPECT_TRUE(at::equal(model->layers[1]->weight, unused));
    EXPECT_FALSE(at::equal(model->layers[0]->weight, used));
    EXPECT_TRUE(report_of(wrapper->reducer()).buckets.empty());
    EXPECT_FALSE(report_of(wrapper->reducer()).is_rebuilt);
    EXPECT_TRUE(report_of(wrapper->reducer()).use_counts.empty());
  }
}

}  // namespace traffic_test
}  // namespace lockstep::parallel
