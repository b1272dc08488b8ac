// SPDX-License-Identifier: BSD-3-Clause
// The buckets of the second step, in the order in which gradients came in the first.
#include <torch/csrc/autograd/variable.h>

#include "parallel/store/bucket_plan.hpp"
#include "parallel/store/reducer.hpp"
#include "parallel_test.hpp"
#include "support/counting_collectives.hpp"

namespace lockstep::parallel {
namespace rebuild_test {

using RebuildTest = ParallelTest;

const BucketLimits kOneEach = {.bucket_bytes = {1}, .last_bucket_bytes = 0};

using Members = std::vector<std::vector<std::size_t>>;

/// The parameters of every bucket.
Members members_of(const std::vector<Bucket>& buckets) {
  Members members;
  for (const Bucket& bucket : buckets) {
    auto& of_bucket = members.emplace_back();
    for (const Slot& slot : bucket.slots) of_bucket.push_back(slot.parameter);
  }
  return members;
}

// Cases 70 and 95.
TEST_F(RebuildTest, HappensOnceInTheOrderOfArrival) {
  if (size() == 1) GTEST_SKIP() << "one rank has no buckets";
  const std::vector<std::int64_t> widths = {3, 4, 5, 2};
  for (const BucketLimits& limits : {BucketLimits{}, kOneEach}) {
    auto model = std::make_shared<Layers>(widths, /*has_bias=*/false);
    const auto wrapper = wrap(model, {.reducer = {.limits = limits}});
    for (int step = 0; step < 4; ++step) {
      EXPECT_EQ(report_of(wrapper->reducer()).is_rebuilt, step > 1);
      drop_gradients(*model);
      wrapper->forward(batch_of(rank(), step, widths).input()).sum().backward();
      const Members whole = {{0, 1, 2}};
      const Members rebuilt = limits.bucket_bytes[0] == 1 ? Members{{2}, {1}, {0}} : Members{{2, 1, 0}};
      EXPECT_EQ(members_of(report_of(wrapper->reducer()).buckets), step == 0 ? whole : rebuilt);
      EXPECT_EQ(report_of(wrapper->reducer()).use_counts, std::vector<int>(3, size()));
    }
    // 10 + 20 + 12 float64 elements, each parameter on 64 bytes.
    std::int64_t count = 0;
    for (const Bucket& bucket : report_of(wrapper->reducer()).buckets) count += bucket.count;
    EXPECT_EQ(count, 16 + 24 + 16);
  }
}

/// Layers that are registered in the opposite order of their execution.
class Backwards : public Layers {
 public:
  Backwards() : Layers({4, 4, 4, 4}, /*has_bias=*/false) {}
  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor values = input;
    for (std::size_t i = layers.size(); i > 0; --i) {
      values = at::tanh(run(i - 1, values));
      values.register_hook([this](const at::Tensor& gradient) {
        ++gradients_passed;
        return gradient;
      });
    }
    return values;
  }
  int gradients_passed = 0;
};

// Case 71: how many layers' backward had begun when each bucket was started.
TEST_F(RebuildTest, LetsTheFirstBucketStartFirst) {
  if (size() == 1) GTEST_SKIP() << "one rank has no buckets";
  testing::CountingCollectives collectives(make_collectives());
  for (const bool rebuilds : {true, false}) {
    auto model = std::make_shared<Backwards>();
    std::vector<int> started_at;
    collectives.on_start([&] { started_at.push_back(model->gradients_passed); });
    DistributedDataParallel wrapper(model, world_, collectives,
                                    {.reducer = {.limits = kOneEach, .finds_unused = !rebuilds}});
    const auto step = [&](int number) {
      started_at.clear();
      model->gradients_passed = 0;
      drop_gradients(*model);
      wrapper.forward(batch_of(rank(), number, {4, 4}).input()).sum().backward();
      return started_at;
    };
    // Searching for unused parameters keeps the order of registration, in which the last gradient is due first.
    EXPECT_EQ(step(0), rebuilds ? std::vector<int>({3}) : std::vector<int>({3, 3, 3}));
    for (int i = 1; i < 3; ++i) {
      EXPECT_EQ(step(i), rebuilds ? std::vector<int>({1, 2, 3}) : std::vector<int>({3, 3, 3}));
    }
    collectives.on_start({});
  }
}

// Case 72: two branches, which ranks run in different order.
TEST_F(RebuildTest, TakesRankZerosOrderEverywhere) {
  if (size() == 1) GTEST_SKIP() << "one rank has no buckets";
  auto model = std::make_shared<Layers>(std::vector<std::int64_t>{3, 3, 3}, /*has_bias=*/false);
  Layers alone({3, 3, 3}, /*has_bias=*/false);
  const auto wrapper = wrap(model, {.reducer = {.limits = kOneEach}});
  const auto loss = [](Layers& layers, int r, int step) {
    const at::Tensor input = eighths({2, 3}, 3 * step + r);
    const std::size_t first = r % 2 == 0 ? 0 : 1;
    const at::Tensor a = layers.run(first, input).square().sum();
    return a + layers.run(1 - first, input).square().sum();
  };
  for (int step = 0; step < 3; ++step) {
    drop_gradients(*model);
    wrapper->run([&] { return loss(*model, rank(), step); }).backward();
    expect_gradients(*model, average_gradients(alone, size(), [&](int r) { return loss(alone, r, step); }));
  }
  // Backward runs the branch first that forward ran last.
  EXPECT_EQ(members_of(report_of(wrapper->reducer()).buckets), (Members{{1}, {0}}));
}

// Case 73.
TEST_F(RebuildTest, KeepsGradients) {
  const std::vector<std::int64_t> widths = {3, 4, 2};
  auto model = std::make_shared<Layers>(widths);
  Layers alone(widths);
  const auto wrapper = wrap(model, {.reducer = {.limits = kOneEach}});
  const auto loss = [&](int step) {
    const batch::Batch batch = batch_of(rank(), step, widths);
    return models::total_loss(model->losses(wrapper->forward(batch.input()), batch.target()));
  };
  loss(0).backward();
  model->layers[0]->bias.mutable_grad().reset();  // a missing gradient is not made
  const std::vector<at::Tensor> before = gradients_of(*model);
  const void* const place = model->layers[0]->weight.grad().data_ptr();
  const at::Tensor second = loss(1);
  EXPECT_EQ(report_of(wrapper->reducer()).is_rebuilt, size() > 1);
  EXPECT_EQ(model->layers[0]->weight.grad().data_ptr() == place, size() == 1);
  expect_gradients(*model, before);
  second.backward();
  const auto of_step = average_gradients(alone, size(), [&](int r) { return loss_of(alone, batch_of(r, 1, widths)); });
  std::vector<at::Tensor> expected;
  for (std::size_t i = 0; i < 4; ++i) expected.push_back(before[i].defined() ? before[i] + of_step[i] : of_step[i]);
  expect_gradients(*model, expected, 1e-13);
}

}  // namespace rebuild_test
}  // namespace lockstep::parallel
