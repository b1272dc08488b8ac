// SPDX-License-Identifier: BSD-3-Clause
// Parts of the parameters whose gradients are reduced on their own: DdpOptions::parts with separates_parts.
#include <lockstep/optim/optim_wrapper.hpp>

#include <set>

#include "training.hpp"

namespace lockstep::parallel {
namespace separate_test {

constexpr double kLr = 0.125;

/// Two networks that are trained against each other, and a frozen copy of the first.
class Rivals : public models::Model {
 public:
  Rivals() {
    torch::manual_seed(1);
    generator = register_module("generator", std::make_shared<models::Linear>(2, 3));
    discriminator = register_module("discriminator", std::make_shared<models::Linear>(3, 1));
    average = register_module("average", std::make_shared<models::Linear>(2, 3));
    for (auto& parameter : average->parameters()) parameter.set_requires_grad(false);
    to(at::kDouble);
    name_blocks();
  }
  at::Tensor forward(const at::Tensor& noise) override { return models::run(*generator, noise); }

  /// The discriminator's loss: it looks twice.
  at::Tensor judge(const batch::Batch& batch) {
    const at::Tensor real = models::run(*discriminator, batch.target());
    const at::Tensor made = models::run(*discriminator, forward(batch.input()).detach());
    return (real - 1).square().mean() + made.square().mean();
  }
  at::Tensor deceive(const batch::Batch& batch) {
    return (models::run(*discriminator, forward(batch.input())) - 1).square().mean();
  }

  std::shared_ptr<models::Linear> generator;
  std::shared_ptr<models::Linear> discriminator;
  std::shared_ptr<models::Linear> average;
};

/// Noise and real samples.
batch::Batch rivals_batch(int rank, int step) { return samples_of(rank, step, 2, 2, 3); }

/// The training that one process does with the batches of all ranks.
class Alone {
 public:
  explicit Alone(int world_size) : world_size_(world_size) {}

  void step(int number, int micro_batches = 1) {
    update(*model.discriminator, number, micro_batches,
           [this](const batch::Batch& batch) { return model.judge(batch); });
    update(*model.generator, number, micro_batches, [this](const batch::Batch& batch) { return model.deceive(batch); });
  }

  Rivals model;

 private:
  void update(models::Block& part, int number, int micro_batches,
              const std::function<at::Tensor(const batch::Batch&)>& loss) {
    model.zero_grad();
    for (int rank = 0; rank < world_size_; ++rank) {
      for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
        const batch::Batch batch = rivals_batch(rank, number * micro_batches + micro_batch);
        (loss(batch) / world_size_ / micro_batches).backward();
      }
    }
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& parameter : part.parameters()) parameter.add_(parameter.grad(), -kLr);
  }

  int world_size_;
};

/// The children with trained parameters, in alphabetical order: each is a part.
std::vector<std::string> trained_children(const models::Model& model) {
  std::set<std::string> names;
  for (const auto& item : model.named_parameters()) {
    if (item.value().requires_grad()) names.insert(item.key().substr(0, item.key().find('.')));
  }
  return {names.begin(), names.end()};
}

class SeparateTest : public TrainingTest {
 protected:
  std::unique_ptr<DistributedDataParallel> wrap_children(std::shared_ptr<models::Model> model,
                                                         DdpOptions options = {}) {
    const std::vector<std::string> names = trained_children(*model);
    for (std::size_t part = 0; part < names.size(); ++part) {
      for (const auto& item : model->named_parameters()) {
        if (item.key().starts_with(names[part] + ".")) options.parts.emplace(item.key(), part);
      }
    }
    options.separates_parts = true;
    return wrap(std::move(model), options);
  }

  static optim::OptimWrapperDict optimizers_of(DistributedDataParallel& wrapper, std::int64_t accumulation_steps = 1) {
    optim::OptimWrapperDict optimizers;
    const std::vector<std::string> names = trained_children(wrapper.model());
    for (std::size_t part = 0; part < names.size(); ++part) {
      optimizers.add(names[part], make_optimizer(wrapper.part(part), {{"name", "sgd"}, {"lr", std::to_string(kLr)}},
                                                 {.accumulation_steps = accumulation_steps}));
    }
    return optimizers;
  }

  /// Forward, backward and update of one part.
  static optim::UpdateReport update(DistributedDataParallel& wrapper, optim::OptimWrapper& optimizer,
                                    const std::function<at::Tensor()>& loss_of) {
    at::Tensor loss;
    {
      const auto context = wrapper.optim_context(optimizer);
      loss = wrapper.run(loss_of);
    }
    return optimizer.update_params(loss);
  }

  /// First the discriminator, then the generator.
  static void compete(DistributedDataParallel& wrapper, Rivals& model, const batch::Batch& batch,
                      optim::OptimWrapperDict& optimizers) {
    update(wrapper, optimizers.at("discriminator"), [&] { return model.judge(batch); });
    update(wrapper, optimizers.at("generator"), [&] { return model.deceive(batch); });
  }
};

TEST_F(SeparateTest, EachChildIsTrainedByItsOwnOptimizer) {
  for (const bool shares : {false, true}) {
    Alone alone(size());
    auto model = std::make_shared<Rivals>();
    auto wrapper = wrap_children(model, {.reducer = {.limits = {{8}, 8}}, .shares_parameters = shares});
    auto optimizers = optimizers_of(*wrapper);
    for (int step = 0; step < 6; ++step) {
      alone.step(step);
      compete(*wrapper, *model, rivals_batch(rank(), step), optimizers);
      EXPECT_TRUE(is_same_everywhere(*model));
      expect_close(values_of(*model), values_of(alone.model));
    }
  }
}

TEST_F(SeparateTest, ChildrenThatRestCanBeFrozenInstead) {
  Alone alone(size());
  auto model = std::make_shared<Rivals>();
  auto wrapper = wrap_children(model);
  auto optimizers = optimizers_of(*wrapper);
  const auto set_trained = [&](bool is_trained) {
    for (auto& parameter : model->discriminator->parameters()) parameter.set_requires_grad(is_trained);
  };
  for (int step = 0; step < 4; ++step) {
    alone.step(step);
    const batch::Batch batch = rivals_batch(rank(), step);
    update(*wrapper, optimizers.at("discriminator"), [&] { return model->judge(batch); });
    set_trained(false);
    update(*wrapper, optimizers.at("generator"), [&] { return model->deceive(batch); });
    EXPECT_FALSE(model->discriminator->weight.requires_grad()) << "the context of the generator changed it";
    set_trained(true);
  }
  expect_close(values_of(*model), values_of(alone.model));
}

TEST_F(SeparateTest, OptimizersThatAccumulateSynchronizeOncePerStep) {
  Alone alone(size());
  auto model = std::make_shared<Rivals>();
  auto wrapper = wrap_children(model);
  auto optimizers = optimizers_of(*wrapper, 2);
  for (int step = 0; step < 3; ++step) {
    alone.step(step, 2);
    for (const bool is_generator : {false, true}) {
      const at::Tensor& weight = (is_generator ? model->generator : model->discriminator)->weight;
      for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
        const batch::Batch batch = rivals_batch(rank(), 2 * step + micro_batch);
        const optim::UpdateReport report =
            update(*wrapper, optimizers.at(is_generator ? "generator" : "discriminator"),
                   [&] { return is_generator ? model->deceive(batch) : model->judge(batch); });
        EXPECT_EQ(report.updated, micro_batch == 1);
        if (report.updated) continue;
        EXPECT_EQ(is_same_everywhere(weight.grad()), size() == 1);
      }
    }
  }
  expect_close(values_of(*model), values_of(alone.model));
}

TEST_F(SeparateTest, WhatIsNotTrainedIsOnlyBroadcast) {
  auto model = std::make_shared<Rivals>();
  model->average->register_buffer("count", torch::full({1}, rank() + 4));
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) parameter.fill_(rank() + 1.5);
  }
  auto wrapper = wrap_children(model);
  for (const auto& parameter : model->parameters()) {
    EXPECT_TRUE(at::equal(parameter, torch::full_like(parameter, 1.5)));
  }
  EXPECT_EQ(model->average->named_buffers()["count"].item<std::int64_t>(), 4);
  std::vector<std::string> names;
  for (std::size_t part = 0; part < 2; ++part) {
    for (const optim::FlatBlock& block : wrapper->part(part).blocks()) {
      for (const optim::Segment& segment : block.segments) names.push_back(segment.name);
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"discriminator.weight", "discriminator.bias", "generator.weight",
                                             "generator.bias"}));
}

TEST_F(SeparateTest, NoSyncReachesEveryChild) {
  if (size() == 1) GTEST_SKIP() << "one rank has nothing to synchronize";
  auto model = std::make_shared<Rivals>();
  auto wrapper = wrap_children(model);
  const batch::Batch batch = rivals_batch(rank(), 0);
  const auto expect_agreement = [&](bool is_synchronized) {
    wrapper->run([&] { return model->deceive(batch); }).backward();
    for (const auto& child : {model->generator, model->discriminator}) {
      EXPECT_EQ(is_same_everywhere(child->weight.grad()), is_synchronized);
    }
  };
  {
    const auto only_here = wrapper->no_sync();
    expect_agreement(false);
  }
  expect_agreement(true);
}

/// Two heads over one input; preprocessing halves it.
class Halving : public models::Model {
 public:
  Halving() {
    torch::manual_seed(1);
    left = register_module("left", std::make_shared<models::Linear>(3, 2));
    right = register_module("right", std::make_shared<models::Linear>(3, 2));
    to(at::kDouble);
    name_blocks();
  }
  batch::Batch preprocess(batch::Batch batch, bool) const override {
    batch.set_input(batch.input() / 2);
    return batch;
  }
  batch::Outputs forward_batch(const batch::Batch& batch) override {
    return {{"left", models::run(*left, batch.input())}, {"right", models::run(*right, batch.input())}};
  }
  models::LossMap losses_of(const batch::Outputs& outputs, const batch::Batch& batch) const override {
    return {{"loss_left", at::mse_loss(outputs.tensor("left"), batch.target())},
            {"loss_right", outputs.tensor("right").square()}};
  }
  models::Predictions predictions_of(const batch::Outputs& outputs, const batch::Batch&) const override {
    return {{"sum", outputs.tensor("left") + outputs.tensor("right")}};
  }
  std::shared_ptr<models::Linear> left;
  std::shared_ptr<models::Linear> right;
};

// It would not return if a forward, a loss or a prediction were collective.
TEST_F(SeparateTest, EvaluationIsNotCollective) {
  const auto model = std::make_shared<Halving>();
  const auto wrapper = wrap_children(model);
  model->eval();
  const batch::Batch batch = samples_of(rank(), 0);
  if (rank() == 0) {
    EXPECT_FALSE(wrapper->val_step(batch).outputs.tensor("left").requires_grad());
    EXPECT_EQ(wrapper->test_step(batch).tensor("sum").size(1), 2);
    const torch::NoGradGuard no_grad;
    EXPECT_EQ(wrapper->forward(wrapper->prepare(batch, /*is_training=*/false)).tensor("right").size(1), 2);
  }
  EXPECT_EQ(world_.all_gather(std::string(1, 'x')).size(), static_cast<std::size_t>(size()));
}

// Two outputs and losses by name, each of which trains one child.
TEST_F(SeparateTest, EveryStepRunsAModelOfSeveralOutputs) {
  const auto model = std::make_shared<Halving>();
  const auto wrapper = wrap_children(model);
  auto optimizers = optimizers_of(*wrapper);
  const batch::Batch batch = samples_of(rank(), 0);
  const at::Tensor half = batch.input() / 2;
  const at::Tensor left = models::run(*model->left, half).detach();
  const at::Tensor right = models::run(*model->right, half).detach();
  const ValidationResult validated = wrapper->val_step(batch);
  EXPECT_TRUE(at::equal(validated.outputs.tensor("right"), right));
  EXPECT_DOUBLE_EQ(validated.losses.total.item<double>(),
                   (at::mse_loss(left, batch.target()) + right.square().mean()).item<double>());
  EXPECT_TRUE(at::equal(wrapper->test_step(batch).tensor("sum"), left + right));
  const std::vector<at::Tensor> before = values_of(*model);
  const batch::Batch prepared = wrapper->prepare(batch, /*is_training=*/true);
  for (const std::string name : {"left", "right"}) {
    update(*wrapper, optimizers.at(name), [&] {
      for (const auto& [loss, term] : model->losses_of(models::run(*model, prepared), prepared)) {
        if (loss == "loss_" + name) return models::total_loss({{loss, term}});
      }
      return at::Tensor();
    });
  }
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_FALSE(at::equal(values_of(*model)[i], before[i])) << i;
  EXPECT_TRUE(is_same_everywhere(*model));
}

}  // namespace separate_test
}  // namespace lockstep::parallel
