// SPDX-License-Identifier: BSD-3-Clause
// One device and no other ranks. The meta device stands for one that is not the CPU.
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include "batch/collate.hpp"
#include "parallel_test.hpp"
#include "support/sentence.hpp"

namespace lockstep::parallel {
namespace data_parallel_test {

using batch::DataContainer;
using batch::Value;
using batch::ValueList;
using batch::ValueMap;

const std::vector<std::int64_t> kWidths = {3, 4, 2};

class DataParallelTest : public ParallelTest {
 protected:
  static batch::Batch batch(int step) { return batch_of(0, step, kWidths, 4); }

  std::shared_ptr<Layers> model_ = std::make_shared<Layers>(kWidths);
};

// Plain SGD manually.
TEST_F(DataParallelTest, TrainsAsByHand) {
  DataParallel wrapper(model_);
  optim::OptimWrapper optimizer = make_optimizer(wrapper.parameters(), {{"name", "sgd"}, {"lr", "0.25"}});
  Layers alone(kWidths);
  for (int step = 0; step < 3; ++step) {
    drop_gradients(alone);
    const at::Tensor loss = loss_of(alone, batch_of(0, step, kWidths, 4));
    loss.backward();
    const StepResult result = wrapper.train_step(batch(step), optimizer);
    EXPECT_EQ(result.loss, loss.item<double>());
    EXPECT_TRUE(result.update.updated);
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& parameter : alone.parameters()) parameter.sub_(parameter.grad(), 0.25);
  }
  expect_equal(values_of(*model_), values_of(alone), 1e-12);
}

class TwoLosses : public Layers {
 public:
  TwoLosses() : Layers(kWidths) {}
  models::LossMap losses(const at::Tensor& output, const at::Tensor&) const override {
    return {{"loss_cls", output.sum() * 0 + 1},
            {"loss_list", {{output.sum() * 0 + 2, output.sum() * 0 + 3}}},
            {"acc", torch::tensor(0.5)}};
  }
};

TEST_F(DataParallelTest, LossesAreLoggedByTheirNames) {
  DataParallel wrapper(std::make_shared<TwoLosses>());
  const std::vector<std::pair<std::string, double>> expected = {
      {"loss", 6}, {"loss_cls", 1}, {"loss_list", 5}, {"acc", 0.5}};
  EXPECT_EQ(models::host_values(wrapper.val_step(batch(0)).losses), expected);
}

TEST_F(DataParallelTest, OptionsChooseTheLosses) {
  DataParallel wrapper(std::make_shared<TwoLosses>());
  optim::OptimWrapper optimizer = make_optimizer(wrapper.parameters(), {{"name", "sgd"}, {"lr", "0.25"}});
  const auto loss_with = [&](const StepOptions& options) {
    return wrapper.train_step(batch(0), optimizer, 1.0, options).loss;
  };
  EXPECT_EQ(loss_with({}), 6);
  EXPECT_EQ(loss_with({.sum = models::LossSum::all}), 6.5);
  EXPECT_THROW(loss_with({.sum = models::LossSum::main}), ConfigError) << "there is no entry called loss";
  const auto tenfold = [](models::Model& model, const batch::Batch& given) {
    const batch::Outputs outputs = models::run(model, given);
    return StepLosses{.losses = {{"loss", outputs.main().sum() * 0 + 10}}, .outputs = outputs};
  };
  EXPECT_EQ(loss_with({.losses = tenfold}), 10);
  wrapper.model().eval();
  EXPECT_EQ(loss_with({}), 6);
  EXPECT_THROW(loss_with({.requires_training_mode = true}), std::logic_error);
}

/// Writes down the events.
class NotingObserver : public StepObserver {
 public:
  void on_prepared(const batch::Batch& prepared) override { events += "prepared " + std::to_string(prepared.size()); }
  void on_forward(const batch::Outputs& outputs) override { events += outputs.is_empty() ? "" : ", forward"; }
  void on_loss(const models::ParsedLosses& losses) override { events += losses.values.empty() ? "" : ", loss"; }
  void on_backward() override { events += ", backward"; }
  void on_update() override { events += ", update"; }

  std::string events;
};

TEST_F(DataParallelTest, AnObserverSeesTheEventsInOrder) {
  DataParallel wrapper(model_);
  optim::OptimWrapper optimizer =
      make_optimizer(wrapper.parameters(), {{"name", "sgd"}, {"lr", "0.25"}}, {.accumulation_steps = 2});
  for (const char* expected : {"prepared 4, forward, loss, update", "prepared 4, forward, loss, backward, update"}) {
    NotingObserver observer;
    wrapper.train_step(batch(0), optimizer, std::nullopt, {}, &observer);
    EXPECT_EQ(observer.events, expected);
  }
  NotingObserver observer;
  wrapper.val_step(batch(0), &observer);
  EXPECT_EQ(observer.events, "prepared 4, forward, loss");
}

TEST_F(DataParallelTest, ValStepHasNoGradients) {
  DataParallel wrapper(model_);
  const ValidationResult result = wrapper.val_step(batch(0));
  EXPECT_EQ(result.losses.total.item<double>(), loss_of(*model_, batch(0)).item<double>());
  EXPECT_TRUE(at::equal(result.outputs.main(), model_->forward(batch(0).input())));
  EXPECT_FALSE(result.outputs.main().requires_grad());
  for (const at::Tensor& parameter : model_->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST_F(DataParallelTest, TestStepPredictsWithoutATarget) {
  DataParallel wrapper(model_);
  const at::Tensor input = batch(0).input();
  const at::Tensor classes = wrapper.test_step(batch::Batch(input)).tensor("classes");
  EXPECT_TRUE(at::equal(classes, model_->forward(input).argmax(-1)));
  EXPECT_FALSE(classes.requires_grad());
}

/// Adds another value of the batch to what it computes.
class Shifted : public Layers {
 public:
  Shifted() : Layers(kWidths) {}
  batch::Outputs forward_batch(const batch::Batch& batch) override {
    EXPECT_EQ(batch.at("name").as<std::string>(), "a text");
    return forward(batch.input()) + batch.input(1);
  }
};

TEST_F(DataParallelTest, SeveralInputsReachTheModel) {
  const auto model = std::make_shared<Shifted>();
  DataParallel wrapper(model);
  batch::Batch shifted = batch(0);
  const at::Tensor plain = model->forward(shifted.input());
  shifted.set_roles(std::make_shared<const batch::Roles>(batch::Roles{.inputs = {"data", "shift"}}));
  shifted.set("shift", torch::full({4, 1}, 0.5, at::kFloat));  // is brought to the type of the parameters
  shifted.set("name", "a text");
  const batch::Batch prepared = wrapper.prepare(shifted, /*is_training=*/true);
  EXPECT_EQ(prepared.input(1).scalar_type(), at::kDouble);
  EXPECT_TRUE(at::equal(wrapper.forward(prepared).main(), plain + 0.5));
}

/// Halves its input while training and doubles it otherwise.
class Preprocessing : public Layers {
 public:
  Preprocessing() : Layers(kWidths) {}
  batch::Batch preprocess(batch::Batch batch, bool is_training) const override {
    EXPECT_FALSE(at::GradMode::is_enabled());
    batch.set_input(batch.input() * (is_training ? 0.5 : 2));
    return batch;
  }
};

TEST_F(DataParallelTest, TheModelPreprocessesInEveryStep) {
  const auto model = std::make_shared<Preprocessing>();
  DataParallel wrapper(model);
  optim::OptimWrapper optimizer = make_optimizer(wrapper.parameters(), {{"name", "sgd"}, {"lr", "0"}});
  const auto scaled = [](double factor) { return batch::Batch(batch(0).input() * factor, batch(0).target()); };
  EXPECT_EQ(wrapper.train_step(batch(0), optimizer).loss, loss_of(*model, scaled(0.5)).item<double>());
  EXPECT_EQ(wrapper.val_step(batch(0)).losses.total.item<double>(), loss_of(*model, scaled(2)).item<double>());
  EXPECT_TRUE(at::equal(wrapper.test_step(batch(0)).main(), model->forward(scaled(2).input()).argmax(-1)));
}

TEST_F(DataParallelTest, ContainersAreUnwrapped) {
  DataParallel wrapper(model_);
  ValueList samples;
  for (std::int64_t i = 0; i < 4; ++i) {
    const batch::Batch plain = batch(0);
    samples.push_back(ValueMap{
        {"data", DataContainer(plain.input()[i], {.stack = true, .pad_dims = std::nullopt})},
        {"label", DataContainer(plain.target()[i], {.stack = true, .pad_dims = std::nullopt})},
        {"name", DataContainer("a text", {.cpu_only = true})},
    });
  }
  const auto loss = [&](const batch::Batch& given) { return wrapper.val_step(given).losses.total.item<double>(); };
  EXPECT_EQ(loss(batch::collated(samples, {})), loss(batch(0)));
  const batch::Batch two_groups(batch::collate(samples, 2).as<ValueMap>(), 4);
  EXPECT_TRUE(contains(testing::sentence_of<DataError>([&] { loss(two_groups); }), "has 2 groups"));
}

TEST_F(DataParallelTest, SeveralDevicesAreRefusedByStepsOnly) {
  DataParallel wrapper(model_, {at::Device(at::kCPU, 0), at::Device(at::kCPU, 1)});
  optim::OptimWrapper optimizer = make_optimizer(wrapper.parameters(), {{"name", "sgd"}, {"lr", "0.25"}});
  EXPECT_EQ(wrapper.forward(batch(0).input()).sizes(), at::IntArrayRef({4, 2}));
  EXPECT_EQ(wrapper.test_step(batch(0)).main().sizes(), at::IntArrayRef({4}));
  const std::string expected =
      "DataParallel trains on one device, not on 2 (cpu:0, cpu:1); use DistributedDataParallel with one rank per "
      "device";
  EXPECT_EQ(refusal([&] { wrapper.train_step(batch(0), optimizer); }), expected);
  EXPECT_EQ(refusal([&] { wrapper.val_step(batch(0)); }), expected);
}

TEST_F(DataParallelTest, WhatIsOnAnotherDeviceIsNamedWithBoth) {
  model_->register_buffer("level", torch::zeros({1}, at::TensorOptions(at::kMeta)));
  DataParallel wrapper(model_);
  EXPECT_EQ(refusal([&] { wrapper.forward(batch(0).input()); }),
            "DataParallel: buffer 'level' is on meta, but the model is expected on cpu; move the model there");
  const std::string name = model_->named_parameters().begin()->key();
  const auto another = std::make_shared<Layers>(kWidths);
  DataParallel elsewhere(another, {at::kMeta});
  EXPECT_EQ(
      refusal([&] { elsewhere.val_step(batch(0)); }),
      "DataParallel: parameter '" + name + "' is on cpu, but the model is expected on meta; move the model there");
}

TEST_F(DataParallelTest, ABatchWithoutATargetIsRefusedByName) {
  DataParallel wrapper(model_);
  EXPECT_EQ(testing::sentence_of<DataError>([&] { wrapper.val_step(batch::Batch(batch(0).input())); }),
            "samples do not contain 'label', only 'data'");
}

TEST_F(DataParallelTest, InputsTakeTheTypeOfTheParameters) {
  DataParallel wrapper(model_);
  EXPECT_EQ(wrapper.forward(torch::zeros({1, 3}, at::kFloat)).scalar_type(), at::kDouble);
}

TEST_F(DataParallelTest, AModelOfAnotherWrapperIsRefused) {
  const auto other = wrap(model_);
  EXPECT_TRUE(contains(refusal([&] { DataParallel wrapper(model_); }), "belongs to another wrapper"));
}

}  // namespace data_parallel_test
}  // namespace lockstep::parallel
