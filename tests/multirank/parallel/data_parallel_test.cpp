// SPDX-License-Identifier: BSD-3-Clause
// One device and no other ranks. The meta device stands for one that is not the CPU.
#include <lockstep/parallel/data_parallel.hpp>

#include "data/collate.hpp"
#include "parallel_test.hpp"

namespace lockstep::parallel {
namespace data_parallel_test {

using data::DataContainer;
using data::Value;
using data::ValueList;
using data::ValueMap;

const std::vector<std::int64_t> kWidths = {3, 4, 2};

/// A model whose parameter is on the meta device.
class Elsewhere : public models::Model {
 public:
  Elsewhere() { weight_ = register_parameter("weight", torch::zeros({3, 2}, at::TensorOptions(at::kMeta))); }
  at::Tensor forward(const at::Tensor& input) override { return input.matmul(weight_); }

 private:
  at::Tensor weight_;
};

class DataParallelTest : public ParallelTest {
 protected:
  static ValueMap batch(int step) {
    const data::Batch plain = batch_of(0, step, kWidths, 4);
    return {{"input", plain.input}, {"target", plain.target}};
  }
  template <class E>
  static std::string sentence(const std::function<void()>& body) {
    try {
      body();
    } catch (const E& error) {
      return error.what();
    }
    return "";
  }

  std::shared_ptr<Layers> model_ = std::make_shared<Layers>(kWidths);
};

// Plain SGD by hand.
TEST_F(DataParallelTest, TrainsAsByHand) {
  DataParallel wrapper(model_);
  optim::OptimWrapper optimizer = make_optimizer(wrapper.parameters(), {{"name", "sgd"}, {"lr", "0.25"}});
  Layers alone(kWidths);
  for (int step = 0; step < 3; ++step) {
    drop_gradients(alone);
    const at::Tensor loss = loss_of(alone, batch_of(0, step, kWidths, 4));
    loss.backward();
    const BatchResult result = wrapper.train_step(batch(step), optimizer);
    EXPECT_EQ(result.loss, loss.item<double>());
    EXPECT_EQ(result.samples, 4);
    EXPECT_TRUE(result.update.updated);
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& parameter : alone.parameters()) parameter.sub_(parameter.grad(), 0.25);
  }
  expect_equal(values_of(*model_), values_of(alone), 1e-12);
}

TEST_F(DataParallelTest, LossesAreLoggedByTheirNames) {
  class TwoLosses : public Layers {
   public:
    TwoLosses() : Layers(kWidths) {}
    models::LossMap losses(const at::Tensor& output, const at::Tensor&) const override {
      return {{"loss_cls", output.sum() * 0 + 1},
              {"loss_list", {{output.sum() * 0 + 2, output.sum() * 0 + 3}}},
              {"acc", torch::tensor(0.5)}};
    }
  };
  DataParallel wrapper(std::make_shared<TwoLosses>());
  const BatchResult result = wrapper.val_step(batch(0));
  const std::vector<std::pair<std::string, double>> expected = {
      {"loss", 6}, {"loss_cls", 1}, {"loss_list", 5}, {"acc", 0.5}};
  EXPECT_EQ(result.loss, 6);
  EXPECT_EQ(result.values, expected);
  EXPECT_FALSE(result.update.updated);
}

TEST_F(DataParallelTest, ValStepHasNoGradients) {
  DataParallel wrapper(model_);
  const data::Batch plain = batch_of(0, 0, kWidths, 4);
  EXPECT_EQ(wrapper.val_step(batch(0)).loss, loss_of(*model_, plain).item<double>());
  for (const at::Tensor& parameter : model_->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST_F(DataParallelTest, TestStepPredictsWithoutATarget) {
  DataParallel wrapper(model_);
  const at::Tensor input = batch(0).at("input").as<at::Tensor>();
  EXPECT_TRUE(at::equal(wrapper.test_step(input).classes, model_->forward(input).argmax(-1)));
  EXPECT_FALSE(wrapper.test_step(ValueMap{{"input", input}}).classes.requires_grad());
}

TEST_F(DataParallelTest, OtherTensorsGoToModelsOfSeveralInputs) {
  class Shifted : public Layers {
   public:
    Shifted() : Layers(kWidths) {}
    at::Tensor forward_all(const at::Tensor& input, const models::NamedTensors& more) override {
      EXPECT_EQ(more.size(), 1U);
      return forward(input) + more.at("shift");
    }
  };
  const auto model = std::make_shared<Shifted>();
  DataParallel wrapper(model);
  ValueMap shifted = batch(0);
  const at::Tensor plain = model->forward(shifted.at("input").as<at::Tensor>());
  shifted["shift"] = torch::full({4, 1}, 0.5, at::kFloat);  // is brought to the type of the parameters
  shifted["name"] = "a text";
  EXPECT_TRUE(at::equal(wrapper.forward(shifted), plain + 0.5));
}

TEST_F(DataParallelTest, ContainersAreUnwrapped) {
  DataParallel wrapper(model_);
  ValueList samples;
  for (std::int64_t i = 0; i < 4; ++i) {
    const data::Batch plain = batch_of(0, 0, kWidths, 4);
    samples.push_back(ValueMap{
        {"input", DataContainer(plain.input[i], {.stack = true, .pad_dims = std::nullopt})},
        {"target", DataContainer(plain.target[i], {.stack = true, .pad_dims = std::nullopt})},
        {"name", DataContainer("a text", {.cpu_only = true})},
    });
  }
  const Value collated = data::collate(samples, 4);
  EXPECT_EQ(wrapper.val_step(collated).loss, wrapper.val_step(batch(0)).loss);
  EXPECT_TRUE(at::equal(wrapper.forward(collated), wrapper.forward(batch(0).at("input"))));
  EXPECT_TRUE(contains(sentence<DataError>([&] { wrapper.val_step(data::collate(samples, 2)); }), "has 2 groups"));
}

TEST_F(DataParallelTest, SeveralDevicesAreRefusedByStepsOnly) {
  DataParallel other(model_);
  optim::OptimWrapper optimizer = make_optimizer(other.parameters(), {{"name", "sgd"}, {"lr", "0.25"}});
  DataParallel wrapper(std::make_shared<Elsewhere>(), {at::Device(at::kMeta, 0), at::Device(at::kMeta, 1)});
  EXPECT_EQ(wrapper.forward(batch(0)).sizes(), at::IntArrayRef({4, 2}));
  const std::string expected =
      "DataParallel trains on one device, not on 2 (meta:0, meta:1); use DistributedDataParallel instead, with a rank "
      "for each";
  EXPECT_EQ(refusal([&] { wrapper.train_step(batch(0), optimizer); }), expected);
  EXPECT_EQ(refusal([&] { wrapper.val_step(batch(0)); }), expected);
}

TEST_F(DataParallelTest, WhatIsOnAnotherDeviceIsNamedWithBoth) {
  const auto model = std::make_shared<Elsewhere>();
  DataParallel wrapper(model, {at::kMeta});
  EXPECT_EQ(wrapper.forward(batch(0)).device(), at::Device(at::kMeta));
  model->register_buffer("level", torch::zeros({1}));
  EXPECT_EQ(refusal([&] { wrapper.forward(batch(0)); }),
            "DataParallel: buffer 'level' is on cpu, but the model is expected on meta; move the model there");
  DataParallel on_cpu(model);
  EXPECT_EQ(refusal([&] { on_cpu.val_step(batch(0)); }),
            "DataParallel: parameter 'weight' is on meta, but the model is expected on cpu; move the model there");
}

TEST_F(DataParallelTest, RefusesWhatIsNoBatch) {
  DataParallel wrapper(model_);
  const auto of_val_step = [&](const Value& value) { return sentence<DataError>([&] { wrapper.val_step(value); }); };
  EXPECT_EQ(of_val_step(Value()), "DataParallel: a batch is a map with 'target', not nothing");
  EXPECT_EQ(of_val_step(ValueMap{{"input", torch::zeros({1, 3})}}), "DataParallel: the batch has no 'target'");
  EXPECT_EQ(of_val_step(ValueMap{{"input", torch::zeros({1, 3})}, {"target", "text"}}),
            "DataParallel: 'target' of the batch is a text, not a tensor");
  EXPECT_EQ(sentence<DataError>([&] { wrapper.forward(Value()); }),
            "DataParallel: a batch is a map with 'input', not nothing");
}

TEST_F(DataParallelTest, InputsTakeTheTypeOfTheParameters) {
  DataParallel wrapper(model_);
  EXPECT_EQ(wrapper.forward(torch::zeros({1, 3}, at::kFloat)).scalar_type(), at::kDouble);
}

TEST_F(DataParallelTest, AModelOfAnotherWrapperIsRefused) {
  const auto other = wrap(model_);
  DataParallel wrapper(model_);
  EXPECT_TRUE(contains(refusal([&] { wrapper.parameters(); }), "belongs to another wrapper"));
}

}  // namespace data_parallel_test
}  // namespace lockstep::parallel
