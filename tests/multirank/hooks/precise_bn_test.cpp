// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/parallel/synchronization.hpp>

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include "engine/measures/precise_statistics.hpp"
#include "hooked_run.hpp"

namespace lockstep::engine {
namespace precise_bn_test {

/// One layer, run `uses` times.
class OneNorm : public models::Model {
 public:
  explicit OneNorm(std::int64_t channels, int uses = 1) : uses_(uses) {
    norm = register_module("norm", std::make_shared<models::BatchNorm>(channels));
    name_blocks();
  }
  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor output = input;
    for (int i = 0; i < uses_; ++i) output = models::run(*norm, output);
    return output;
  }
  std::shared_ptr<models::BatchNorm> norm;

 private:
  int uses_;
};

class PreciseStatisticsTest : public ::testing::Test {
 protected:
  PreciseStatisticsTest() : collectives_(mpi::make_collectives(world_, {.backend = "auto", .timeout_s = 60})) {}

  /// The batches are divided among ranks in turn.
  void measure(OneNorm& model, const std::vector<at::Tensor>& batches) {
    PreciseStatistics statistics(model);
    for (std::size_t i = 0; i < batches.size(); ++i) {
      if (i % static_cast<std::size_t>(world_.size()) != static_cast<std::size_t>(world_.rank())) continue;
      statistics.observe([&] { models::run(model, batches[i]); });
    }
    statistics.finish(*collectives_);
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  std::unique_ptr<mpi::Collectives> collectives_;
};

at::Tensor column(std::vector<double> values) { return torch::tensor(values, at::kFloat).view({-1, 1}); }

// training-loop.md 6.9: the population of {1, 3} and {2, 4, 6, 8}, where means of batches would give 3.5 and 4.333.
TEST_F(PreciseStatisticsTest, IsThatOfThePopulation) {
  OneNorm model(1);
  measure(model, {column({1, 3}), column({2, 4, 6, 8})});
  EXPECT_FLOAT_EQ(model.norm->running_mean.item<float>(), 4);
  EXPECT_FLOAT_EQ(model.norm->running_var.item<float>(), 34.0F / 6);
  EXPECT_EQ(model.norm->num_batches_tracked.item<std::int64_t>(), 0);
}

TEST_F(PreciseStatisticsTest, DoesNotDependOnHowSamplesAreDivided) {
  torch::manual_seed(3);
  const at::Tensor all = torch::randn({128, 3, 4, 4}) * 2 + torch::arange(3).view({1, 3, 1, 1});
  const at::Tensor values = all.to(at::kDouble).transpose(0, 1).flatten(1);
  const std::vector<std::vector<std::int64_t>> divisions = {
      std::vector<std::int64_t>(8, 16), {2, 2, 4, 8, 16, 32, 64}, {128}};
  for (const auto& sizes : divisions) {
    OneNorm model(3);
    measure(model, all.split_with_sizes(sizes));
    EXPECT_TRUE(at::allclose(model.norm->running_mean.to(at::kDouble), values.mean(1), 1e-6, 1e-6));
    EXPECT_TRUE(at::allclose(model.norm->running_var.to(at::kDouble), values.var(1, /*unbiased=*/false), 1e-6, 1e-6));
  }
}

TEST_F(PreciseStatisticsTest, IsTheSameOfSynchronizedLayers) {
  OneNorm model(1);
  parallel::convert_to_sync_batch_norm(model, *collectives_);
  const double rank = world_.rank();
  PreciseStatistics statistics(model);
  statistics.observe([&] { models::run(model, column({rank, rank + 1})); });
  statistics.observe([&] { models::run(model, column({10 + rank, 10 + rank})); });
  statistics.finish(*collectives_);
  const double size = world_.size();
  std::vector<double> all;
  for (double r = 0; r < size; ++r) all.insert(all.end(), {r, r + 1, 10 + r, 10 + r});
  const at::Tensor values = torch::tensor(all, at::kDouble);
  EXPECT_NEAR(model.norm->running_mean.item<double>(), values.mean().item<double>(), 1e-5);
  EXPECT_NEAR(model.norm->running_var.item<double>(), values.var(false).item<double>(), 1e-5);
}

TEST_F(PreciseStatisticsTest, LayersInEvaluationModeStay) {
  OneNorm model(1);
  model.norm->eval();
  measure(model, {column({1, 3}), column({2, 4})});
  EXPECT_EQ(model.norm->running_mean.item<float>(), 0);
  EXPECT_TRUE(PreciseStatistics(model).is_empty());
}

TEST_F(PreciseStatisticsTest, AFailureLeavesNoTrace) {
  OneNorm model(1, /*uses=*/2);
  model.norm->running_mean.fill_(0.5);
  try {
    PreciseStatistics statistics(model);
    statistics.observe([&] { models::run(model, column({1, 3})); });
    ADD_FAILURE() << "a layer that is used twice is taken";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "batch norm 'norm' is used twice in one forward pass, so its statistics are not defined");
  }
  EXPECT_EQ(model.norm->running_mean.item<float>(), 0.5F);
  EXPECT_EQ(model.norm->running_var.item<float>(), 1);
  EXPECT_EQ(model.norm->num_batches_tracked.item<std::int64_t>(), 0);
  models::run(model, column({1, 3}));  // and the layer learns as before: 0.9 * (0.9 * 0.5 + 0.1 * 2) + 0.1 * 0
  EXPECT_NEAR(model.norm->running_mean.item<float>(), 0.585, 1e-6);
}

TEST_F(PreciseStatisticsTest, LayersOfLibTorchAreRefused) {
  struct Mixed : models::Model {
    Mixed() { register_module("inner", torch::nn::BatchNorm2d(3)); }
    at::Tensor forward(const at::Tensor& input) override { return input; }
  };
  Mixed model;
  EXPECT_THROW(PreciseStatistics{model}, ConfigError);
}

class PreciseBnTest : public ::testing::Test {
 protected:
  void expect_statistics_of_two_steps(const Settings& more) {
    HookedRun run(world_, with_hook("precise_bn,samples=24,every=1", with({{"model.name", "normed"}}, more)), tables_);
    models::BatchNorm& norm = *dynamic_cast<Normed&>(run.model.wrapper->model()).norm;
    const at::Tensor weight = norm.weight.detach().clone();
    run.hook().before_train(run.trainer.view());
    run.hook().before_evaluation(run.trainer.view());
    std::vector<batch::Draw> draws;
    for (const std::int64_t step : {0, 1}) {
      const auto some = run.trainer.view().data.sampler().draws(0, step, {0, 12});
      draws.insert(draws.end(), some.begin(), some.end());
    }
    const at::Tensor values = run.splits.train->get(draws).input().to(at::kDouble).flatten(1);
    EXPECT_TRUE(at::allclose(norm.running_mean.to(at::kDouble), values.mean(0), 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(norm.running_var.to(at::kDouble), values.var(0, false), 1e-5, 1e-6));
    EXPECT_TRUE(at::equal(norm.weight, weight));
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  Registry tables_ = registry_with_normed();
};

TEST_F(PreciseBnTest, TakesTheSamplesOfTheNextSteps) {
  expect_statistics_of_two_steps({});
  expect_statistics_of_two_steps({{"train.micro_batch", "2"}});
  expect_statistics_of_two_steps({{"ddp.sync_batch_norm", "true"}});
}

TEST_F(PreciseBnTest, IsDueAtTheEndOfSomeEpochsAndOfTheRun) {
  // 100 samples at 12: an epoch is 8 steps.
  HookedRun run(world_, with_hook("precise_bn,every=2epochs", {{"model.name", "normed"}, {"train.max_steps", "40"}}),
                tables_);
  models::BatchNorm& norm = *dynamic_cast<Normed&>(run.model.wrapper->model()).norm;
  run.hook().before_train(run.trainer.view());
  const auto is_done_at = [&](std::int64_t step) {
    run.trainer.run().resume_at(step, step / 8, step % 8 * 12, step * 12);
    norm.running_mean.fill_(100);
    run.hook().before_evaluation(run.trainer.view());
    return norm.running_mean.max().item<float>() < 100;
  };
  for (const auto& [step, expected] : {std::pair{8, false}, {12, false}, {16, true}, {24, false}, {32, true}}) {
    EXPECT_EQ(is_done_at(step), expected) << step;
  }
  EXPECT_TRUE(is_done_at(40));
}

TEST_F(PreciseBnTest, MoreSamplesThanThereAreAreRefusedWhereTheyWereAskedFor) {
  HookedRun run(world_, with_hook("precise_bn,samples=97", {{"model.name", "normed"}}), tables_);
  EXPECT_EQ(agreed_error_of<ConfigError>(world_, [&] { run.hook().before_train(run.trainer.view()); }),
            "train.hooks: precise_bn: samples=97, but an epoch has 96");
}

TEST_F(PreciseBnTest, WithoutSuchLayersNothingHappens) {
  HookedRun run(world_, with_hook("precise_bn"));
  run.hook().before_train(run.trainer.view());
  run.hook().before_evaluation(run.trainer.view());
  EXPECT_TRUE(run.model.wrapper->model().is_training());
}

}  // namespace precise_bn_test
}  // namespace lockstep::engine
