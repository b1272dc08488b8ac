// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/parallel/separate_distributed_data_parallel.hpp>

#include <torch/nn/modules/linear.h>

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

/// What one process does with the batches of all ranks.
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

class SeparateTest : public TrainingTest {
 protected:
  std::unique_ptr<SeparateDistributedDataParallel> wrap_children(std::shared_ptr<models::Model> model,
                                                                 const DdpOptions& options = {}) {
    return std::make_unique<SeparateDistributedDataParallel>(std::move(model), world_, *collectives_, options);
  }

  static optim::OptimWrapperDict optimizers_of(SeparateDistributedDataParallel& wrapper,
                                               std::int64_t accumulation_steps = 1) {
    optim::OptimWrapperDict optimizers;
    for (const std::string& name : wrapper.names()) {
      optimizers.add(name, optimizer_of(wrapper.child(name), "sgd", kLr, accumulation_steps));
    }
    return optimizers;
  }

  /// First the discriminator, then the generator; the one that rests must not keep what the other's loss gave it.
  static SeparateDistributedDataParallel::Step rivalry(SeparateDistributedDataParallel& wrapper, Rivals& model) {
    return [&wrapper, &model](const batch::Batch& batch, optim::OptimWrapperDict& optimizers) {
      const at::Tensor judged = model.judge(batch);
      optimizers.at("discriminator").update_params(judged);
      const at::Tensor deceived = model.deceive(batch);
      optimizers.at("generator").update_params(deceived);
      wrapper.child("discriminator").parameters().drop_gradients();
      return models::LossMap{{"loss_discriminator", judged.detach()}, {"loss_generator", deceived.detach()}};
    };
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
      const models::LossMap losses =
          wrapper->train_step(rivals_batch(rank(), step), optimizers, rivalry(*wrapper, *model));
      EXPECT_EQ(losses[1].first, "loss_generator");
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
    wrapper->train_step(rivals_batch(rank(), step), optimizers,
                        [&](const batch::Batch& batch, optim::OptimWrapperDict& all) {
                          all.at("discriminator").update_params(model->judge(batch));
                          set_trained(false);
                          all.at("generator").update_params(model->deceive(batch));
                          set_trained(true);
                          return models::LossMap{};
                        });
  }
  expect_close(values_of(*model), values_of(alone.model));
}

TEST_F(SeparateTest, OptimizersThatAccumulateSynchronizeOncePerStep) {
  Alone alone(size());
  auto model = std::make_shared<Rivals>();
  auto wrapper = wrap_children(model);
  auto optimizers = optimizers_of(*wrapper, 2);
  // Backwards of both are asked for separately, so that each accumulates its own gradients only.
  const auto part = [&](const std::string& name) {
    return [&, name](const batch::Batch& batch, optim::OptimWrapperDict& all) {
      const bool is_generator = name == "generator";
      for (auto& parameter : model->discriminator->parameters()) parameter.set_requires_grad(!is_generator);
      const optim::UpdateReport report =
          all.at(name).update_params(is_generator ? model->deceive(batch) : model->judge(batch));
      if (!report.updated) {
        const at::Tensor gradient = (is_generator ? model->generator : model->discriminator)->weight.grad();
        EXPECT_EQ(is_same_everywhere(gradient), size() == 1);
      }
      return models::LossMap{};
    };
  };
  for (int step = 0; step < 3; ++step) {
    alone.step(step, 2);
    for (const char* name : {"discriminator", "generator"}) {
      for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
        wrapper->train_step(rivals_batch(rank(), 2 * step + micro_batch), optimizers, part(name));
      }
    }
  }
  for (auto& parameter : model->discriminator->parameters()) parameter.set_requires_grad(true);
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
  EXPECT_EQ(wrapper->names(), (std::vector<std::string>{"discriminator", "generator"}));
  for (const auto& parameter : model->parameters()) {
    EXPECT_TRUE(at::equal(parameter, torch::full_like(parameter, 1.5)));
  }
  EXPECT_EQ(model->average->named_buffers()["count"].item<std::int64_t>(), 4);
  EXPECT_EQ(wrapper->child("generator").parameters().blocks()[0].segments[0].name, "generator.weight");
}

TEST_F(SeparateTest, NoSyncReachesEveryChild) {
  if (size() == 1) GTEST_SKIP() << "one rank has nothing to synchronize";
  auto model = std::make_shared<Rivals>();
  auto wrapper = wrap_children(model);
  optim::OptimWrapperDict none;
  const auto gradients_agree = [&] {
    wrapper->train_step(rivals_batch(rank(), 0), none, [&](const batch::Batch& batch, optim::OptimWrapperDict&) {
      model->deceive(batch).backward();
      return models::LossMap{};
    });
    const bool generator = is_same_everywhere(model->generator->weight.grad());
    const bool discriminator = is_same_everywhere(model->discriminator->weight.grad());
    EXPECT_EQ(generator, discriminator);
    return generator;
  };
  {
    const auto only_here = wrapper->no_sync();
    EXPECT_FALSE(gradients_agree());
  }
  EXPECT_TRUE(gradients_agree());
}

TEST_F(SeparateTest, EvaluationIsNotCollective) {
  auto model = std::make_shared<Rivals>();
  auto wrapper = wrap_children(model);
  wrapper->model().eval();
  EXPECT_FALSE(model->generator->is_training());
  if (rank() == 0) {
    const torch::NoGradGuard no_grad;
    EXPECT_EQ(wrapper->model().forward(rivals_batch(0, 0).input()).size(1), 3);
  }
  world_.barrier();
}

TEST_F(SeparateTest, WhatCannotBeSeparatedIsRefused) {
  const auto refusal = [&](std::shared_ptr<models::Model> model) {
    return error_of<ConfigError>([&] { wrap_children(std::move(model)); });
  };
  auto own = std::make_shared<Rivals>();
  own->register_parameter("scale", torch::ones({1}, at::kDouble));
  EXPECT_NE(refusal(own).find("'scale' does not belong to a child"), std::string::npos);
  auto foreign = std::make_shared<Rivals>();
  foreign->register_module("foreign", torch::nn::Linear(2, 2));
  EXPECT_NE(refusal(foreign).find("child 'foreign' has trained parameters, but is not a models::Block"),
            std::string::npos);
  auto tied = std::make_shared<Rivals>();
  tied->register_module("again", tied->generator);
  EXPECT_NE(refusal(tied).find("'generator' and 'again' share a parameter"), std::string::npos);
  auto frozen = std::make_shared<Rivals>();
  for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  EXPECT_NE(refusal(frozen).find("nothing to train"), std::string::npos);

  auto wrapper = wrap_children(std::make_shared<Rivals>());
  auto optimizers = optimizers_of(*wrapper);
  optimizers.add("average", optimizer_of(wrapper->child("generator")));
  const auto nothing = [](const batch::Batch&, optim::OptimWrapperDict&) { return models::LossMap{}; };
  EXPECT_EQ(error_of<ConfigError>([&] { wrapper->train_step({}, optimizers, nothing); }),
            "ddp: there is no trained child 'average'; the trained ones are: discriminator, generator");
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

// Two outputs and losses by name, through both children's wrappers.
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
  EXPECT_FALSE(validated.outputs.tensor("left").requires_grad());
  EXPECT_DOUBLE_EQ(validated.losses.total.item<double>(),
                   (at::mse_loss(left, batch.target()) + right.square().mean()).item<double>());
  EXPECT_TRUE(at::equal(wrapper->test_step(batch).tensor("sum"), left + right));
  const at::Tensor before = model->left->weight.detach().clone();
  wrapper->train_step(batch, optimizers, [&](const batch::Batch& given, optim::OptimWrapperDict& all) {
    const batch::Batch prepared = wrapper->prepare(given, /*is_training=*/true);
    const models::LossMap losses = model->losses_of(models::run(*model, prepared), prepared);
    for (const auto& [name, term] : losses) all.at(name.substr(5)).update_params(models::total_loss({{name, term}}));
    return losses;
  });
  EXPECT_FALSE(at::equal(model->left->weight, before));
}

}  // namespace separate_test
}  // namespace lockstep::parallel
