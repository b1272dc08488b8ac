// SPDX-License-Identifier: BSD-3-Clause
// Rows of a program's own, with the same results on all ranks as on one: a loss that reads two outputs and a weight of
// each sample, and a meter that adds real numbers of an output and of a value that it presets.
#include <lockstep/models/layers.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "engine/evaluation/evaluation_counts.hpp"
#include "small_run.hpp"

namespace lockstep::engine {
namespace own_rows_test {

constexpr std::int64_t kFeatures = 3;

/// Points with a height, and a weight that is 0 for every fifth of them.
class Heights : public data::SampleDataset {
 public:
  explicit Heights(std::int64_t size) : size_(size) {}
  std::int64_t size() const override { return size_; }
  Task task() const override { return {.sample_shape = {kFeatures}, .classes = 1, .kind = TaskKind::custom}; }
  batch::Roles roles() const override { return {.inputs = {"point"}, .targets = {"height"}}; }
  std::uint64_t digest() const override { return 1; }
  batch::ValueMap sample(const batch::Draw& draw) const override {
    const auto i = static_cast<double>(draw.index);
    const at::Tensor point = at::sin(torch::arange(kFeatures, at::kDouble) + 1.3 * i);
    return {{"point", point},
            {"height", torch::full({1}, std::cos(i), at::kDouble)},
            {"weight", torch::full({1}, draw.index % 5 == 4 ? 0 : 1 + i / 7, at::kDouble)}};
  }

 private:
  std::int64_t size_;
};

/// Predicts a height and the logarithm of its error.
class TwoOutputs : public models::Model {
 public:
  explicit TwoOutputs(double scale) : scale_(scale) {
    height_ = register_module("height", std::make_shared<models::Linear>(kFeatures, 1));
    spread_ = register_module("spread", std::make_shared<models::Linear>(kFeatures, 1));
  }
  batch::Outputs forward_batch(const batch::Batch& batch) override {
    const at::Tensor point = scale_ * batch.input();
    return {{"height", models::run(*height_, point)}, {"spread", models::run(*spread_, point)}};
  }

 private:
  double scale_;
  std::shared_ptr<models::Linear> height_;
  std::shared_ptr<models::Linear> spread_;
};

/// The weighted mean of the negative logarithms of normal densities.
at::Tensor likelihood(const batch::Outputs& outputs, const batch::Batch& batch, bool) {
  const at::Tensor& spread = outputs.tensor("spread");
  const at::Tensor error = (batch.target() - outputs.main()) * at::exp(-spread);
  const at::Tensor& weight = batch.tensor("weight");
  return (weight * (error.square() / 2 + spread)).sum() / weight.sum().clamp_min(1e-12);
}

/// The sums of the spreads and of their products with the weights: numbers of different sizes and signs.
metrics::Meter spreads() {
  using metrics::ExactSum;
  metrics::Meter meter = metrics::meter_of_sums(
      {{"spread"}, {"weighted_spread"}}, 2,
      [](const metrics::Samples& samples, std::span<ExactSum> sums) {
        for (std::size_t i = 0; i < samples.size(); ++i) {
          sums[0].add(samples.outputs[i]);
          sums[1].add_product(samples.outputs[i], samples.targets[i]);
        }
      },
      [](std::span<const ExactSum> sums) {
        return metrics::Reading{{sums[0].value(), sums[1].value()}};
      });
  meter.reads.output = "spread";
  meter.reads.target = "weight";
  return meter;
}

Registry registry_with_rows() {
  Registry registry;
  registry.sources.push_back({.name = "heights", .help = "", .keys = {}, .open = [](const Section&) {
                                return data::Splits{.train = std::make_shared<Heights>(50),
                                                    .val = std::make_shared<Heights>(13)};
                              }});
  for (const auto& [name, scale] : {std::pair("two_outputs", 1.0), std::pair("two_large_outputs", 100.0)}) {
    registry.models.push_back(
        {.name = name, .help = "", .keys = {}, .make = [scale = scale](const Section&, const Task&) {
           return std::shared_ptr<models::Model>(std::make_shared<TwoOutputs>(scale));
         }});
  }
  registry.losses.push_back({.name = "likelihood", .help = "", .keys = {}, .make = [](const Section&, const Task&) {
                               return models::Loss{.value = likelihood, .count = [](const batch::Batch& batch) {
                                                     return batch.tensor("weight").sum().item<double>();
                                                   }};
                             }});
  registry.meters.push_back(
      {.name = "spreads", .help = "", .needs = "", .keys = {}, .make = [](const auto&, auto) { return spreads(); }});
  return registry;
}

class OwnRowsTest : public ::testing::Test {
 protected:
  std::unique_ptr<SmallRun> run_on(const mpi::Communicator& world, const Settings& more) const {
    return std::make_unique<SmallRun>(world,
                                      with({{"model.name", "two_outputs"},
                                            {"loss.name", "likelihood"},
                                            {"data.name", "heights"},
                                            {"data.shuffle", "false"},
                                            {"train.precision", "fp64"},
                                            {"train.max_steps", "6"},
                                            {"optim.name", "sgd"},
                                            {"optim.lr", "0.1"}},
                                           more),
                                      registry_);
  }
  static models::Model& model(const SmallRun& run) { return run.model.wrapper->model(); }

  mpi::Communicator world_ = mpi::Communicator::world();
  mpi::Communicator self_ = world_.split(world_.rank());
  Registry registry_ = registry_with_rows();
};

// Parts of 2 samples of 11 have different weights together, and some none.
TEST_F(OwnRowsTest, ALossWithItsOwnWeightsTrainsTheSameOnAllRanks) {
  const auto alone = run_on(self_, {{"train.global_batch_size", "11"}});
  const auto divided = run_on(world_, {{"train.global_batch_size", "11"}, {"train.micro_batch", "2"}});
  const batch::Batch first = alone->splits.train->get(batch::draws_in_order(0, 11));
  const double expected = likelihood(models::run(model(*alone), first), first, true).item<double>();
  const at::Tensor before = model(*alone).parameters().front().detach().clone();
  alone->trainer.train();
  divided->trainer.train();
  EXPECT_GT((model(*alone).parameters().front() - before).abs().max().item<double>(), 1e-3);
  EXPECT_NEAR(alone->losses.front(), expected, 1e-14 * std::abs(expected));
  ASSERT_EQ(divided->losses.size(), 6U);
  for (std::size_t i = 0; i < divided->losses.size(); ++i) {
    EXPECT_NEAR(divided->losses[i], alone->losses[i], 1e-12 * std::abs(alone->losses[i])) << i;
  }
  for (std::size_t i = 0; i < model(*alone).parameters().size(); ++i) {
    EXPECT_LT((model(*alone).parameters()[i] - model(*divided).parameters()[i]).abs().max().item<double>(), 1e-12);
  }
}

TEST_F(OwnRowsTest, RealNumbersOfPresetValuesHaveTheBitsOfOneRank) {
  const auto evaluated = [&](const mpi::Communicator& world, const std::string& meter) {
    const auto run = run_on(world, {{"model.name", "two_large_outputs"}});
    metrics::Meters meters = make_meters({{meter}, "test"}, run->splits.val->task(), registry_.meters);
    const double loss = evaluate(*run, *run->splits.val, 1, meters).mean_loss();
    const auto numbers = meters.read().numbers;
    return std::vector<double>{loss, numbers.at(0).second, numbers.at(1).second};
  };
  const std::vector<double> alone = evaluated(self_, "spreads");
  EXPECT_EQ(evaluated(world_, "spreads"), alone);

  const auto run = run_on(self_, {{"model.name", "two_large_outputs"}});
  const batch::Batch all = run->splits.val->get(batch::draws_in_order(0, 13));
  const torch::NoGradGuard no_grad;
  const batch::Outputs outputs = models::run(model(*run), all);
  const at::Tensor& spread = outputs.tensor("spread");
  // Rounding of at most 13 additions of numbers below 1000, by a matrix product of another size.
  EXPECT_NEAR(alone[0], likelihood(outputs, all, false).item<double>(), 1e-10 * std::abs(alone[0]));
  EXPECT_NEAR(alone[1], spread.sum().item<double>(), 1e-10);
  EXPECT_NEAR(alone[2], (spread * all.tensor("weight")).sum().item<double>(), 1e-10);

  // The options of a configuration replace what the row presets.
  const std::vector<double> heights = evaluated(world_, "spreads,output=height,target=height");
  EXPECT_NEAR(heights[1], outputs.main().sum().item<double>(), 1e-10);
  EXPECT_NEAR(heights[2], (outputs.main() * all.target()).sum().item<double>(), 1e-10);
  EXPECT_GT(std::abs(heights[1] - alone[1]), 1e-3);
}

}  // namespace own_rows_test
}  // namespace lockstep::engine
