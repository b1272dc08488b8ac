// SPDX-License-Identifier: BSD-3-Clause
// Several backward passes for one step.
#include "parallel/reducers/bucket_reducer.hpp"
#include "parallel_test.hpp"
#include "support/counting_collectives.hpp"

namespace lockstep::parallel {
namespace accumulation_test {

using AccumulationTest = ParallelTest;

const std::vector<std::int64_t> kWidths = {3, 4, 2};
constexpr double kRounding = 1e-13;  // layers add where autograd would, but with other instructions

/// The step's own average gradients plus `before`, where that is defined.
std::vector<at::Tensor> sum_of(const std::vector<at::Tensor>& step, const std::vector<at::Tensor>& before) {
  std::vector<at::Tensor> sums;
  for (std::size_t i = 0; i < step.size(); ++i) sums.push_back(before[i].defined() ? step[i] + before[i] : step[i]);
  return sums;
}

/// Doubles, sums over ranks, and halves again: an average by another way.
CommHook doubling_hook(mpi::Collectives& collectives) {
  return [&collectives](const GradBucket& bucket) -> Completion {
    const at::Tensor buffer = bucket.buffer.mul_(2);
    const mpi::Ticket ticket = collectives.start_all_reduce(
        buffer.mutable_data_ptr(), static_cast<std::size_t>(buffer.numel()), DType::float64, mpi::ReduceOp::sum);
    return [&collectives, buffer, ticket] {
      collectives.wait(ticket);
      return buffer / (2 * collectives.world_size());
    };
  };
}

// Case 45.
TEST_F(AccumulationTest, NoSyncAccumulatesOnThisRankUntilTheNextStepThatSynchronizes) {
  for (const bool has_hook : {false, true}) {
    for (const int steps : {2, 4}) {
      auto model = std::make_shared<Layers>(kWidths);
      Layers alone(kWidths);
      const auto wrapper = wrap(model);
      if (has_hook) set_comm_hook(wrapper->reducer(), doubling_hook(*collectives_));
      std::vector<at::Tensor> expected(4);
      for (int step = 0; step < steps; ++step) {
        const batch::Batch batch = batch_of(rank(), step, kWidths);
        const auto backward = [&] {
          models::total_loss(model->losses(wrapper->forward(batch.input()), batch.target())).backward();
        };
        expected =
            sum_of(average_gradients(alone, size(), [&](int r) { return loss_of(alone, batch_of(r, step, kWidths)); }),
                   expected);
        if (step % 2 == 0) {
          const auto only_here = wrapper->no_sync();
          backward();
          const torch::NoGradGuard no_grad;
          const std::vector<at::Tensor> before = gradients_of(*model);
          wrapper->forward(batch.input());  // accumulates nothing
          expect_gradients(*model, before);
          EXPECT_EQ(at::allclose(before[0], expected[0]), size() == 1);
        } else {
          backward();
          expect_gradients(*model, expected, kRounding);
        }
      }
    }
  }
}

// Case 46.
TEST_F(AccumulationTest, CallingTheModelItselfAccumulatesOnThisRank) {
  auto model = std::make_shared<Layers>(kWidths);
  Layers alone(kWidths);
  const auto wrapper = wrap(model);
  std::vector<at::Tensor> expected(4);
  for (int step = 0; step < 4; ++step) {
    const batch::Batch batch = batch_of(rank(), step, kWidths);
    const at::Tensor output = step % 2 == 0 ? model->forward(batch.input()) : wrapper->forward(batch.input());
    models::total_loss(model->losses(output, batch.target())).backward();
    expected = sum_of(
        average_gradients(alone, size(), [&](int r) { return loss_of(alone, batch_of(r, step, kWidths)); }), expected);
    if (step % 2 == 1) expect_gradients(*model, expected, kRounding);
  }
}

// Case 47: with integers nothing rounds, so the bits are those of one call with all samples.
TEST_F(AccumulationTest, GivesTheGradientOfAllSamples) {
  constexpr int kParts = 4;
  const std::vector<std::int64_t> widths = {3, 2};  // one linear layer
  const auto sum_of_squares = [](const at::Tensor& output, const batch::Batch& batch) {
    return (output - batch.target()).square().sum();
  };
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    for (const bool scales : {false, true}) {
      auto model = std::make_shared<Layers>(widths);
      Layers alone(widths);
      model->to(dtype);
      alone.to(dtype);
      const auto wrapper = wrap(model);
      const double factor = scales ? 0.25 : 1;
      for (int step = 0; step < 2; ++step) {
        drop_gradients(*model);
        const batch::Batch all = batch_of(rank(), step, widths, 2 * kParts, dtype);
        for (int part = 0; part < kParts; ++part) {
          std::optional<DistributedDataParallel::NoSync> only_here;
          if (part + 1 < kParts) only_here.emplace(*wrapper);
          const batch::Batch batch{all.input().narrow(0, 2 * part, 2), all.target().narrow(0, 2 * part, 2)};
          (sum_of_squares(wrapper->forward(batch.input()), batch) * factor).backward();
        }
        const auto expected = average_gradients(alone, size(), [&](int r) {
          const batch::Batch batch = batch_of(r, step, widths, 2 * kParts, dtype);
          return sum_of_squares(alone.forward(batch.input()), batch) * factor;
        });
        expect_gradients(*model, expected);
      }
    }
  }
}

// Case 48.
TEST_F(AccumulationTest, WhetherABackwardSynchronizesIsDecidedByItsForward) {
  auto model = std::make_shared<Layers>(kWidths);
  const auto wrapper = wrap(model);
  const batch::Batch batch = batch_of(rank(), 0, kWidths);
  for (int round = 0; round < 2; ++round) {
    drop_gradients(*model);
    const at::Tensor outside = wrapper->forward(batch.input());
    {
      const auto only_here = wrapper->no_sync();
      models::total_loss(model->losses(outside, batch.target())).backward();
    }
    EXPECT_TRUE(is_same_everywhere(model->layers[0]->weight.grad()));
    drop_gradients(*model);
    at::Tensor inside;
    {
      const auto only_here = wrapper->no_sync();
      inside = wrapper->forward(batch.input());
    }
    models::total_loss(model->losses(inside, batch.target())).backward();
    EXPECT_EQ(is_same_everywhere(model->layers[0]->weight.grad()), size() == 1);
  }
}

// Eleven micro_batches in steps of four: gradients travel with the 4th, the 8th and the 11th.
TEST_F(AccumulationTest, ALoopOfItsOwnDoesWhatTrainStepDoes) {
  testing::CountingCollectives counting(make_collectives());
  auto model = std::make_shared<Layers>(kWidths);
  DistributedDataParallel wrapper(model, world_, counting, {});
  auto other = std::make_shared<Layers>(kWidths);
  const auto other_wrapper = wrap(other);
  const DdpSettings sgd = {{"name", "sgd"}, {"lr", "0.125"}};
  optim::OptimWrapper optimizer = make_optimizer(wrapper.parameters(), sgd, {.accumulation_steps = 4});
  optim::OptimWrapper other_optimizer = make_optimizer(other_wrapper->parameters(), sgd, {.accumulation_steps = 4});
  optimizer.begin_at(0, 11);
  other_optimizer.begin_at(0, 11);
  std::vector<int> reduced;
  std::vector<int> updated;
  for (int i = 1; i <= 11; ++i) {
    const batch::Batch batch = batch_of(rank(), i, kWidths);
    counting.take_counts();
    const at::Tensor loss = [&] {
      const auto context = wrapper.optim_context(optimizer);
      return models::total_loss(model->losses(wrapper.forward(batch.input()), batch.target()));
    }();
    const std::vector<at::Tensor> before = values_of(*model);
    if (optimizer.update_params(loss).updated) updated.push_back(i);
    if (counting.take_counts().all_reduces > 0) reduced.push_back(i);
    EXPECT_EQ(at::equal(values_of(*model)[0], before[0]), i != 4 && i != 8 && i != 11) << i;
    EXPECT_TRUE(is_same_everywhere(model->layers[0]->weight));
    other_wrapper->train_step(batch, other_optimizer);
  }
  EXPECT_EQ(updated, (std::vector<int>{4, 8, 11}));
  EXPECT_EQ(reduced, size() == 1 ? std::vector<int>() : updated);
  expect_equal(values_of(*model), values_of(*other), kRounding);
}

// A forward in 16 bits, its context left before backward.
TEST_F(AccumulationTest, AContextHasTheTypeOfForwards) {
  auto model = std::make_shared<Layers>(kWidths);
  model->to(at::kFloat);
  DdpOptions options;
  options.autocast = at::kHalf;
  const auto wrapper = wrap(model, options);
  optim::OptimWrapper optimizer = make_optimizer(wrapper->parameters(), {{"name", "sgd"}, {"lr", "0.125"}},
                                                 {.scaler = optim::GradScalerOptions{.init_scale = 64}});
  at::Tensor output;
  {
    const auto context = wrapper->optim_context(optimizer);
    output = wrapper->forward(eighths({2, 3}, rank(), at::kFloat));
  }
  EXPECT_EQ(output.scalar_type(), at::kHalf);
  EXPECT_EQ(wrapper->forward(eighths({2, 3}, rank(), at::kFloat)).scalar_type(), at::kFloat);
  EXPECT_TRUE(optimizer.update_params(output.to(at::kFloat).square().mean()).updated);
  EXPECT_TRUE(is_same_everywhere(model->layers[0]->weight));
}

// Case 49.
TEST_F(AccumulationTest, NoSyncEndsWithItsScopeAfterAnError) {
  auto model = std::make_shared<Layers>(kWidths);
  const auto wrapper = wrap(model);
  const batch::Batch batch = batch_of(rank(), 0, kWidths);
  EXPECT_THROW(
      {
        const auto only_here = wrapper->no_sync();
        wrapper->forward(torch::zeros({2, 99}, at::kDouble));
      },
      ConfigError);
  models::total_loss(model->losses(wrapper->forward(batch.input()), batch.target())).backward();
  EXPECT_TRUE(is_same_everywhere(model->layers[0]->weight.grad()));
  {
    const auto outer = wrapper->no_sync();
    { const auto inner = wrapper->no_sync(); }
    drop_gradients(*model);  // the inner scope's end is not the outer's
    models::total_loss(model->losses(wrapper->forward(batch.input()), batch.target())).backward();
    EXPECT_EQ(is_same_everywhere(model->layers[0]->weight.grad()), size() == 1);
  }
}

// A step that was accumulated before new buckets are built moves into them.
TEST_F(AccumulationTest, SurvivesTheNewBucketsOfTheSecondStep) {
  auto model = std::make_shared<Layers>(kWidths);
  Layers alone(kWidths);
  const auto wrapper = wrap(model, {.reducer = {.limits = {.bucket_bytes = {64}, .last_bucket_bytes = 0}}});
  const auto backward = [&](int step) {
    const batch::Batch batch = batch_of(rank(), step, kWidths);
    models::total_loss(model->losses(wrapper->forward(batch.input()), batch.target())).backward();
  };
  backward(0);
  drop_gradients(*model);
  {
    const auto only_here = wrapper->no_sync();
    backward(1);
    backward(2);
  }
  EXPECT_FALSE(report_of(wrapper->reducer()).is_rebuilt);
  backward(3);
  EXPECT_EQ(report_of(wrapper->reducer()).is_rebuilt, size() > 1);
  expect_gradients(*model,
                   average_gradients(alone, size(),
                                     [&](int r) {
                                       return loss_of(alone, batch_of(r, 1, kWidths)) +
                                              loss_of(alone, batch_of(r, 2, kWidths)) +
                                              loss_of(alone, batch_of(r, 3, kWidths));
                                     }),
                   kRounding);
}

}  // namespace accumulation_test
}  // namespace lockstep::parallel
