// SPDX-License-Identifier: BSD-3-Clause
// The reducer over the nccl backend, whose device memory the host can read here: tests/gpu does the same on GPUs.
#include "parallel/store/reducer.hpp"
#include "parallel_test.hpp"
#include "support/stand_in_gpu.hpp"

namespace lockstep::parallel {
namespace nccl_training_test {

const std::vector<std::int64_t> kWidths = {5, 7, 4, 3};

class NcclTrainingTest : public ParallelTest {
 protected:
  NcclTrainingTest() {
    testing::reset_stand_in();
    nccl_ = mpi::make_collectives(world_, {.backend = "nccl", .timeout_s = 60, .gpu = testing::stand_in_gpu()});
  }

  /// Parameters after some steps.
  std::vector<at::Tensor> train(mpi::Collectives& collectives, const DdpSettings& settings, const DdpOptions& options,
                                const optim::OptimWrapper::WrapperOptions& wrapping) {
    const auto model = std::make_shared<Layers>(kWidths);
    DistributedDataParallel wrapper(model, world_, collectives, options);
    optim::OptimWrapper optimizer = make_optimizer(wrapper.parameters(), settings, wrapping);
    for (int step = 0; step < 6; ++step) wrapper.train_step(batch_of(rank(), step, kWidths), optimizer);
    return values_of(*model);
  }

  std::unique_ptr<mpi::Collectives> nccl_;
};

// The link that stands in for NCCL adds in rank order, as the CPU does: the same bits.
TEST_F(NcclTrainingTest, ParametersAreThoseOfTheCpu) {
  const BucketLimits small = {.bucket_bytes = {200}, .last_bucket_bytes = 0};
  const std::vector<DdpOptions> all = {
      {},
      {.reducer = {.limits = small}},
      {.reducer = {.limits = small, .finds_unused = true}},
      {.reducer = {.limits = small, .has_static_graph = true}},
      {.comm_hook = [](mpi::Collectives& all_ranks) { return ChosenHook{.hook = all_reduce_hook(all_ranks)}; }}};
  const DdpSettings settings = {{"name", "sgd"}, {"lr", "0.05"}, {"momentum", "0.9"}};
  for (const DdpOptions& options : all) {
    for (const std::int64_t micro_batches : {1, 2}) {
      const optim::OptimWrapper::WrapperOptions wrapping = {.accumulation_steps = micro_batches,
                                                            .clip = {.max_norm = 1.5}};
      const auto expected = train(*collectives_, settings, options, wrapping);
      const auto actual = train(*nccl_, settings, options, wrapping);
      expect_equal(actual, expected);
    }
  }
  EXPECT_EQ(testing::stand_in_aborts(), 0);
}

TEST_F(NcclTrainingTest, GradientsLieInDeviceBucketsAndAreAverages) {
  if (size() == 1) GTEST_SKIP() << "needs several ranks";
  const auto model = std::make_shared<Layers>(kWidths);
  Layers alone(kWidths);
  DistributedDataParallel wrapper(model, world_, *nccl_, {});
  for (int step = 0; step < 3; ++step) {
    drop_gradients(*model);
    const batch::Batch mine = batch_of(rank(), step, kWidths);
    models::total_loss(model->losses(wrapper.forward(mine.input()), mine.target())).backward();
    expect_gradients(*model, average_gradients(alone, size(), [&](int peer) {
      return loss_of(alone, batch_of(peer, step, kWidths));
    }));
    int device = -1;
    bool is_host = true;
    testing::stand_in_api().locate(model->parameters()[0].grad().const_data_ptr(), &device, &is_host);
    EXPECT_EQ(device, 0);
  }
}

// Case 54, with the mistake found two steps later: the host does not wait for the GPU to learn of it.
TEST_F(NcclTrainingTest, AMissingGradientIsNamedOnEveryRankTwoForwardsLater) {
  if (size() == 1) GTEST_SKIP() << "needs several ranks";
  const auto model = std::make_shared<Layers>(std::vector<std::int64_t>{4, 4, 4});
  DistributedDataParallel wrapper(model, world_, *nccl_, {});
  const at::Tensor input = eighths({2, 4}, rank());
  const auto step = [&](bool uses_all) {
    const at::Tensor output = wrapper.run([&] {
      const at::Tensor first = model->run(0, input);
      return uses_all ? model->run(1, first) : first;
    });
    output.sum().backward();
    wrapper.reducer().finish();
  };
  step(true);
  const auto expect_named = [&](const std::string& text) {
    EXPECT_TRUE(contains(text, "no gradient for")) << text;
    EXPECT_TRUE(contains(text, "l1.weight")) << text;
    wrapper.reset_state();
    step(true);
    step(true);
  };
  step(true);
  step(!is_last());
  step(true);
  expect_named(refusal([&] { step(true); }));
  step(!is_last());
  expect_named(refusal([&] { wrapper.check_last_step(); }));
}

}  // namespace nccl_training_test
}  // namespace lockstep::parallel
