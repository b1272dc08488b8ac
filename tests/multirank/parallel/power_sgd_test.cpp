// SPDX-License-Identifier: BSD-3-Clause
// The communication hook that sends two narrow factors of each gradient.
#include <lockstep/core/error.hpp>

#include <chrono>
#include <thread>

#include "comm_hooks.hpp"
#include "support/counting_collectives.hpp"

namespace lockstep::parallel {
namespace power_sgd_test {

using namespace comm_hooks;
using PowerSgdTest = CommHooksTest;

/// Counts the elements that are reduced, too.
class CountingElements : public testing::CountingCollectives {
 public:
  using CountingCollectives::CountingCollectives;
  std::size_t elements = 0;

  mpi::Ticket start(const mpi::Job& job) override {
    if (job.call.kind == mpi::CallKind::all_reduce) elements += job.call.count;
    return CountingCollectives::start(job);
  }
};

// Case 75: error feedback, warm start and the batched form, in all combinations.
TEST_F(PowerSgdTest, PowerSgdGivesTheAverageOfWhatHasRankOne) {
  for (int flags = 0; flags < 8; ++flags) {
    const PowerSgdOptions options{.start_step = 2,
                                  .min_compression_rate = 0,  // compresses even 2 x 2
                                  .has_error_feedback = (flags & 1) != 0,
                                  .has_warm_start = (flags & 2) != 0,
                                  .is_batched = (flags & 4) != 0};
    for (const bool is_static : {false, true}) {
      for (const float value : task_gradients(make(options), is_static)) {
        EXPECT_NEAR(value, 0.25F, 1e-6) << "combination " << flags;  // a few roundings of products
      }
    }
  }
}

// Case 78.
TEST_F(PowerSgdTest, PowerSgdMustNotBeginWhileBucketsChange) {
  for (const std::int64_t start : {0, 1}) {
    for (int flags = 1; flags < 4; ++flags) {
      const PowerSgdOptions options{
          .start_step = start, .has_error_feedback = (flags & 1) != 0, .has_warm_start = (flags & 2) != 0};
      EXPECT_THROW(power_sgd_hook(*collectives_, options), ConfigError) << start << " " << flags;
      EXPECT_THROW(wrap(std::make_shared<TwoLayers>(), {.comm_hook = make(options)}), ConfigError);
    }
    EXPECT_NO_THROW(
        power_sgd_hook(*collectives_, {.start_step = start, .has_error_feedback = false, .has_warm_start = false}));
  }
  EXPECT_THROW(power_sgd_hook(*collectives_, {.rank = 0}), ConfigError);
  EXPECT_THROW(power_sgd_hook(*collectives_, {.min_compression_rate = -1}), ConfigError);
}

// Case 79. Buckets are small once rebuilt, so that the restored wrapper begins with others than the saved one had.
TEST_F(PowerSgdTest, PowerSgdContinuesWhereItsStateWasTaken) {
  if (size() == 1) GTEST_SKIP() << "one rank asks no hook";
  for (const bool has_error_feedback : {true, false}) {
    for (const bool has_warm_start : {true, false}) {
      const PowerSgdOptions options{.start_step = 2,
                                    .min_compression_rate = 1,
                                    .has_error_feedback = has_error_feedback,
                                    .has_warm_start = has_warm_start};
      const DdpOptions ddp{.reducer = {.limits = {{8}, 8}}, .comm_hook = make(options)};
      const auto run = [&](DistributedDataParallel& wrapper, int from, int target) {
        std::vector<at::Tensor> gradients;
        for (int step = from; step < target; ++step) {
          wrapper.parameters().drop_gradients();
          backward(wrapper, samples_of(rank(), step, 5, 8, 6));
          for (const at::Tensor& gradient : gradients_of(wrapper.model())) gradients.push_back(gradient);
        }
        return gradients;
      };
      auto first = wrap(std::make_shared<TwoLayers>(8, 7, 6), ddp);
      run(*first, 0, 10);
      const HookState state = first->hook_memory()->state();
      const std::vector<at::Tensor> expected = run(*first, 10, 20);
      EXPECT_EQ(state.integers.at("step"), 10);
      EXPECT_EQ(state.tensors.size(), has_error_feedback ? 2U : 0U);
      EXPECT_EQ(state.common.size(), has_warm_start ? 2U : 0U);

      auto fresh = wrap(std::make_shared<TwoLayers>(8, 7, 6), ddp);
      const std::vector<at::Tensor> others = run(*fresh, 10, 20);
      EXPECT_FALSE(at::equal(others[0], expected[0]));

      auto restored = wrap(std::make_shared<TwoLayers>(8, 7, 6), ddp);
      restored->hook_memory()->load_state(state);
      expect_equal(run(*restored, 10, 20), expected);
    }
  }
}

TEST_F(PowerSgdTest, AStateOfAnotherKindIsRefused) {
  const auto memory = power_sgd_hook(*collectives_, {}).memory;
  EXPECT_THROW(memory->load_state({}), CheckpointError);
  EXPECT_THROW(memory->load_state({.tensors = {{"momentum", torch::ones({1})}}, .integers = {{"step", 1}}}),
               CheckpointError);
}

// Everything that all steps gave, and what they still owe, is the sum of the averages.
TEST_F(PowerSgdTest, ErrorFeedbackLosesNothing) {
  if (size() == 1) GTEST_SKIP() << "one rank asks no hook";
  for (const bool is_batched : {false, true}) {
    auto model = std::make_shared<TwoLayers>(8, 7, 6);
    auto wrapper = wrap(model, {.comm_hook = make(PowerSgdOptions{.start_step = 2, .is_batched = is_batched})});
    TwoLayers alone(8, 7, 6);
    std::vector<at::Tensor> owed;
    for (const auto& parameter : model->parameters()) owed.push_back(torch::zeros_like(parameter));
    for (int step = 0; step < 8; ++step) {
      wrapper->parameters().drop_gradients();
      backward(*wrapper, samples_of(rank(), step, 5, 8, 6));
      alone.zero_grad();
      for (int r = 0; r < size(); ++r) {
        const batch::Batch batch = samples_of(r, step, 5, 8, 6);
        (models::total_loss(alone.losses(alone.forward(batch.input()), batch.target())) / size()).backward();
      }
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < owed.size(); ++i) {
        owed[i] += alone.parameters()[i].grad() - model->parameters()[i].grad();
      }
    }
    EXPECT_GT(owed[0].abs().max().item<double>(), 1e-3);  // rank one is not enough
    const HookState state = wrapper->hook_memory()->state();
    for (std::size_t i = 0; i < owed.size(); ++i) {
      at::Tensor error = torch::zeros_like(owed[i]);
      const auto mine = state.tensors.find("error." + std::to_string(i));
      if (mine != state.tensors.end()) error.copy_(mine->second.view(error.sizes()));
      collectives_->all_reduce(error.mutable_data_ptr(), static_cast<std::size_t>(error.numel()), DType::float64,
                               mpi::ReduceOp::average);
      EXPECT_TRUE(at::allclose(error, owed[i].detach(), 1e-10, 1e-12)) << is_batched << " " << i;
    }
  }
}

// The average of W outer products has rank W.
TEST_F(PowerSgdTest, PowerSgdOfFullRankGivesTheAverage) {
  if (size() == 1) GTEST_SKIP() << "one rank asks no hook";
  const auto outer = [](int r) {
    return at::outer(at::sin(torch::arange(12, at::kDouble) * (r + 1)),
                     at::cos(torch::arange(9, at::kDouble) * (r + 1)));
  };
  at::Tensor expected = torch::zeros({12, 9}, at::kDouble);
  for (int r = 0; r < size(); ++r) expected += outer(r) / size();
  PowerSgdOptions options{.rank = size(), .start_step = 0, .min_compression_rate = 0};
  options.has_error_feedback = options.has_warm_start = false;
  EXPECT_TRUE(at::allclose(average(outer(rank()), make(options)), expected, 1e-11, 1e-13));
  options.rank = size() - 1;
  EXPECT_FALSE(at::allclose(average(outer(rank()), make(options)), expected, 1e-3, 1e-3));
  // Zeros have no direction, but an average.
  EXPECT_TRUE(at::equal(average(torch::zeros({12, 9}, at::kDouble), make(options)), torch::zeros_like(expected)));
}

TEST_F(PowerSgdTest, PowerSgdSendsFewElements) {
  if (size() == 1) GTEST_SKIP() << "one rank sends nothing";
  const auto sent = [&](const PowerSgdOptions& options) {
    CountingElements counting(make_collectives());
    DistributedDataParallel wrapper(std::make_shared<TwoLayers>(32, 16, 2), world_, counting,
                                    {.comm_hook = make(options)});
    for (int step = 0; step < 3; ++step) {
      counting.elements = 0;
      wrapper.parameters().drop_gradients();
      backward(wrapper, samples_of(rank(), step, 2, 32, 2));
    }
    return counting.elements;
  };
  const std::size_t tail = 1 + 4;
  // 32 x 16 is worth it at rank 2: 2 (32 + 16) 2 < 512; 16 x 2 is not, nor are the two biases.
  EXPECT_EQ(sent({.rank = 2, .start_step = 2}), 2 * (32 + 16) + 32 + 16 + 2 + tail);
  // 562 elements fit into 24 x 24.
  EXPECT_EQ(sent({.start_step = 2, .is_batched = true}), 24 + 24 + tail);
  EXPECT_EQ(sent({.start_step = 3}), 512 + 32 + 16 + 8 + tail);  // padded to 64 bytes
}

/// Branches that each rank runs in an order of its own, some of them slowly.
class Branches : public SquaredModel {
 public:
  explicit Branches(int first) : first_(first) {
    torch::manual_seed(1);
    for (int i = 0; i < kCount; ++i) {
      branches_.push_back(register_module("branch" + std::to_string(i), std::make_shared<models::Linear>(6, 6)));
    }
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& input) override {
    std::vector<at::Tensor> outputs(kCount);
    for (int i = 0; i < kCount; ++i) {
      const auto branch = static_cast<std::size_t>((first_ + i) % kCount);
      outputs[branch] = models::run(*branches_[branch], input * 1.0);
      if (outputs[branch].requires_grad() && i % 3 == first_ % 3) {
        outputs[branch].register_hook(
            [](const at::Tensor&) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
      }
    }
    return at::stack(outputs).sum(0);
  }

 private:
  static constexpr int kCount = 8;
  int first_;
  std::vector<std::shared_ptr<models::Linear>> branches_;
};

// Case 82.
TEST_F(PowerSgdTest, TwoCollectivesABucketAndBucketsInAnyOrderDoNotMixUp) {
  for (const char* backend : {"auto", "mpi"}) {
    const auto all = mpi::make_collectives(world_, {.backend = backend, .timeout_s = 60});
    auto model = std::make_shared<Branches>(3 * rank());
    DistributedDataParallel wrapper(
        model, world_, *all,
        {.reducer = {.limits = {{8}, 8}},
         .comm_hook = make(PowerSgdOptions{.rank = 2, .start_step = 2, .min_compression_rate = 1})});
    for (int step = 0; step < 6; ++step) {
      wrapper.parameters().drop_gradients();
      backward(wrapper, samples_of(rank(), step, 3, 6, 6));
      for (const auto& parameter : model->parameters()) EXPECT_TRUE(is_same_everywhere(parameter.grad()));
    }
  }
}

TEST_F(PowerSgdTest, SixteenBitsAndPowerSgdWorkTogether) {
  if (size() == 1) GTEST_SKIP() << "one rank asks no hook";
  const MakeHook both = [](mpi::Collectives& all) {
    ChosenHook chosen = power_sgd_hook(all, {.rank = 4, .start_step = 2, .min_compression_rate = 1});
    chosen.hook = compressed_hook(at::kBFloat16, chosen.hook, all);
    return chosen;
  };
  auto model = std::make_shared<TwoLayers>(12, 10, 2);
  auto exact = std::make_shared<TwoLayers>(12, 10, 2);
  auto wrapper = wrap(model, {.comm_hook = both});
  auto other = wrap(exact);
  for (int step = 0; step < 4; ++step) {
    wrapper->parameters().drop_gradients();
    other->parameters().drop_gradients();
    backward(*wrapper, samples_of(rank(), step, 2, 12, 2));
    backward(*other, samples_of(rank(), step, 2, 12, 2));
    const at::Tensor largest = exact->first->weight.grad().abs().max();
    // Two samples a rank make rank 2 each; up to 2 ranks nothing but rounding is lost.
    const double bound = size() == 2 ? 0.02 : 1.0;
    EXPECT_LT((model->first->weight.grad() - exact->first->weight.grad()).abs().max().item<double>(),
              bound * largest.item<double>());
    EXPECT_TRUE(is_same_everywhere(model->first->weight.grad()));
  }
}

}  // namespace power_sgd_test
}  // namespace lockstep::parallel
