// SPDX-License-Identifier: BSD-3-Clause
// The steps that train.step chooses from.
#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "small_run.hpp"

namespace lockstep::engine {
namespace {

/// One linear layer with a loss and a penalty that says it is none.
class TwoLosses : public models::Model {
 public:
  explicit TwoLosses(const Task& task) {
    head_ = register_module("head", std::make_shared<models::Linear>(28 * 28, task.classes));
  }
  at::Tensor forward(const at::Tensor& images) override { return models::run(*head_, images.flatten(1)); }
  models::LossMap losses(const at::Tensor& output, const at::Tensor& target) const override {
    const at::Tensor parts = at::cross_entropy_loss(output, target, {}, at::Reduction::None);
    return {{"loss_class", parts}, {"penalty", std::vector<at::Tensor>{output.square().mean(), output.mean()}}};
  }

 private:
  std::shared_ptr<models::Linear> head_;
};

Tables tables_with_two_losses() {
  Tables tables;
  tables.models.push_back({.name = "two_losses", .help = "", .keys = {}, .make = [](const Section&, const Task& task) {
                             return std::shared_ptr<models::Model>(std::make_shared<TwoLosses>(task));
                           }});
  return tables;
}

const Settings kTwoLosses = {
    {"model.name", "two_losses"}, {"data.train_size", "60"},         {"optim.lr", "0.01"},
    {"train.max_steps", "5"},     {"train.global_batch_size", "12"}, {"train.max_epochs", "0"}};

struct Trained {
  std::vector<double> losses;
  std::vector<at::Tensor> parameters;
};

Trained trained(const Settings& settings, const Tables& tables = builtin_tables()) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, settings, tables);
  run.trainer.train();
  Trained result{.losses = run.losses, .parameters = {}};
  for (const at::Tensor& p : run.strategy.model().model().parameters()) result.parameters.push_back(p.detach().clone());
  return result;
}

void expect_same_bits(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.losses, b.losses);
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (std::size_t i = 0; i < a.parameters.size(); ++i) EXPECT_TRUE(at::equal(a.parameters[i], b.parameters[i])) << i;
}

TEST(StepsTest, OneLossIsTrainedAlikeByAll) {
  const std::int64_t share = 12 / mpi::Communicator::world().size();
  for (const Settings& more : {Settings{}, Settings{{"train.micro_batch", std::to_string((share + 1) / 2)}},
                               Settings{{"train.clip_grad", "norm:0.5"}}, Settings{{"train.lanes", "12"}}}) {
    const Trained model = trained(with(kTwelveSteps, more));
    for (const char* step : {"simple", "amp"}) {
      SCOPED_TRACE(step);
      expect_same_bits(model, trained(with(kTwelveSteps, with(more, {{"train.step", step}}))));
    }
  }
}

TEST(StepsTest, SixteenBitsAreForAmpAndModel) {
  const Settings bf16 = with(kTwelveSteps, {{"train.precision", "bf16"}});
  expect_same_bits(trained(bf16), trained(with(bf16, {{"train.step", "amp"}})));
  try {
    trained(with(bf16, {{"train.step", "simple"}}));
    FAIL() << "simple took bf16";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("use train.step=amp"), std::string::npos) << error.what();
  }
}

// "model" trains what is called a loss, the others all that is returned.
TEST(StepsTest, WhatIsTrainedIsTheStepsChoice) {
  const Tables tables = tables_with_two_losses();
  const Trained named = trained(kTwoLosses, tables);
  const Trained all = trained(with(kTwoLosses, {{"train.step", "simple"}}), tables);
  EXPECT_GT(all.losses.front(), named.losses.front());
  EXPECT_FALSE(at::equal(named.parameters.front(), all.parameters.front()));
}

TEST(StepsTest, AnUnknownStepNamesTheKnownOnes) {
  try {
    trained(with(kTwelveSteps, {{"train.step", "simpel"}}));
    FAIL() << "taken";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("simple"), std::string::npos) << error.what();
  }
}

/// Reads every gradient between backward and update.
class GradientHook : public Hook {
 public:
  explicit GradientHook(std::vector<double>& norms) : norms_(&norms) {}
  bool reads_gradients() const override { return true; }
  void on_backward(Trainer& trainer, const LastBatch&) override {
    double squares = 0;
    for (const at::Tensor& parameter : trainer.strategy().model().model().parameters()) {
      squares += parameter.grad().to(at::kDouble).square().sum().item<double>();
    }
    norms_->push_back(std::sqrt(squares));
  }

 private:
  std::vector<double>* norms_;
};

// Whole gradients on every rank: their norm is that which clipping finds, and reading them changes nothing.
TEST(StepsTest, GradientsCanBeReadBetweenBackwardAndUpdate) {
  const mpi::Communicator world = mpi::Communicator::world();
  const Settings settings = with(kTwelveSteps, {{"train.clip_grad", "norm:0.5"}});
  const Trained plain = trained(settings);
  for (const char* step : {"model", "simple"}) {
    SmallRun run(world, with(settings, {{"train.step", step}}));
    std::vector<double> norms;
    run.trainer.add_hook(Priority::normal, std::make_unique<GradientHook>(norms));
    run.trainer.train();
    EXPECT_EQ(run.losses, plain.losses);
    ASSERT_EQ(norms.size(), run.norms.size());
    for (std::size_t i = 0; i < norms.size(); ++i) EXPECT_NEAR(norms[i], run.norms[i], 1e-5 * norms[i]);
  }
}

class SleepyHook : public Hook {
 public:
  void before_step(Trainer& trainer) override { trainer.strategy().model().model().eval(); }
};

TEST(StepsTest, AModelThatSleepsIsAMistakeOfTheProgram) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, with(kTwelveSteps, {{"train.step", "simple"}}));
  run.trainer.add_hook(Priority::normal, std::make_unique<SleepyHook>());
  EXPECT_THROW(run.trainer.train(), std::logic_error);
}

}  // namespace
}  // namespace lockstep::engine
