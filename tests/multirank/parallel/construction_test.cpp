// SPDX-License-Identifier: BSD-3-Clause
#include <torch/nn/modules/embedding.h>

#include "parallel/store/parameter_store.hpp"
#include "parallel/store/tensor_collectives.hpp"
#include "parallel_test.hpp"

namespace lockstep::parallel {
namespace construction_test {

using ConstructionTest = ParallelTest;
using VerificationTest = ParallelTest;

const std::vector<std::int64_t> kWidths = {3, 4, 2};

/// Two layers of the same shape under names that tests choose.
class TwoNames : public models::Model {
 public:
  TwoNames(const char* first, const char* second) {
    register_module(first, std::make_shared<Linear>(3, 3));
    register_module(second, std::make_shared<Linear>(3, 3));
  }
  at::Tensor forward(const at::Tensor& input) override { return input; }
};

/// A model of one parameter.
class OneParameter : public models::Model {
 public:
  explicit OneParameter(at::Tensor value) { weight = register_parameter("weight", std::move(value)); }
  at::Tensor forward(const at::Tensor& input) override { return input * weight; }

  at::Tensor weight;
};

// Case 12.
TEST_F(VerificationTest, ModelsWithDifferentNumbersOfParametersAreRefusedOnEveryRank) {
  if (size() == 1) GTEST_SKIP() << "one rank cannot differ from itself";
  const bool is_odd = is_last();
  const std::string text = refusal([&] {
    wrap(std::make_shared<Layers>(is_odd ? std::vector<std::int64_t>{3, 4, 2, 5} : kWidths));
  });
  EXPECT_EQ(text, "ddp: the models of the ranks differ: rank 0 has nothing more, rank " + std::to_string(size() - 1) +
                      " has parameter 'l2.weight' float64 [5, 2] strides [2, 1] (4 and 6 parameters and buffers); "
                      "build the same model on every rank");
}

// Case 13.
TEST_F(VerificationTest, ModelsWithDifferentSizesAreRefusedOnEveryRank) {
  if (size() == 1) GTEST_SKIP() << "one rank cannot differ from itself";
  const auto make = [&](std::int64_t rows) { return std::make_shared<OneParameter>(torch::zeros({rows, 2})); };
  try {
    wrap(make(rank() == 1 ? 6 : 5));
    ADD_FAILURE() << "not refused";
  } catch (const ConfigError& error) {
    EXPECT_TRUE(error.is_agreed());
    EXPECT_STREQ(error.what(),
                 "ddp: the models of the ranks differ: rank 0 has parameter 'weight' float32 [5, 2] strides [2, 1], "
                 "rank 1 has parameter 'weight' float32 [6, 2] strides [2, 1]; build the same model on every rank");
  }
}

// Case 14.
TEST_F(VerificationTest, ModelsWithDifferentStridesAreRefusedOnEveryRank) {
  if (size() == 1) GTEST_SKIP() << "one rank cannot differ from itself";
  const at::Tensor weight = torch::zeros({2, 3, 4, 4});
  const std::string text = refusal([&] {
    wrap(std::make_shared<OneParameter>(is_last() ? weight.contiguous(at::MemoryFormat::ChannelsLast) : weight));
  });
  EXPECT_TRUE(contains(text, "rank 0 has parameter 'weight' float32 [2, 3, 4, 4] strides [48, 16, 4, 1]")) << text;
  EXPECT_TRUE(contains(text, "[2, 3, 4, 4] strides [48, 1, 12, 3]")) << text;
}

// Case 15.
TEST_F(VerificationTest, ModelsWithDifferentTypesAreRefusedOnEveryRank) {
  if (size() == 1) GTEST_SKIP() << "one rank cannot differ from itself";
  const std::string text =
      refusal([&] { wrap(std::make_shared<OneParameter>(torch::zeros({4}, is_last() ? at::kBFloat16 : at::kFloat))); });
  EXPECT_TRUE(contains(text, "rank 0 has parameter 'weight' float32 [4]")) << text;
  EXPECT_TRUE(contains(text, "has parameter 'weight' bfloat16 [4]")) << text;
}

// Case 16.
TEST_F(VerificationTest, SwappedLayersOfTheSameShapeAreRefusedOnEveryRank) {
  if (size() == 1) GTEST_SKIP() << "one rank cannot differ from itself";
  const bool is_swapped = rank() == 1;
  const std::string text =
      refusal([&] { wrap(std::make_shared<TwoNames>(is_swapped ? "b" : "a", is_swapped ? "a" : "b")); });
  EXPECT_TRUE(contains(text, "rank 0 has parameter 'a.weight'")) << text;
  EXPECT_TRUE(contains(text, "rank 1 has parameter 'b.weight'")) << text;
}

TEST_F(VerificationTest, FrozenParametersAndBuffersBelongToTheModel) {
  if (size() == 1) GTEST_SKIP() << "one rank cannot differ from itself";
  auto frozen = std::make_shared<Layers>(kWidths);
  if (is_last()) frozen->layers[1]->bias.set_requires_grad(false);
  EXPECT_TRUE(contains(refusal([&] { wrap(frozen); }), "'l1.bias' float64 [2] strides [1] frozen"));
  auto more = std::make_shared<Layers>(kWidths);
  if (is_last()) more->register_buffer("extra", torch::zeros({1}));
  EXPECT_TRUE(contains(refusal([&] { wrap(more); }), "has buffer 'extra'"));
}

// Case 17. Several devices take a GPU, and there are no device numbers to be given wrongly.
TEST_F(ConstructionTest, AModelWithNothingToTrainIsRefused) {
  auto model = std::make_shared<Layers>(kWidths);
  for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
  EXPECT_TRUE(contains(refusal([&] { wrap(model); }), "there is nothing to train"));
}

// Case 17.
TEST_F(ConstructionTest, AParameterWithoutValuesIsRefused) {
  const std::string text =
      refusal([&] { wrap(std::make_shared<OneParameter>(torch::zeros({2}, at::TensorOptions().device(at::kMeta)))); });
  EXPECT_TRUE(contains(text, "parameter 'weight' is not initialized")) << text;
}

TEST_F(ConstructionTest, AParameterWithGapsIsRefused) {
  const std::string text = refusal([&] { wrap(std::make_shared<OneParameter>(torch::zeros({4, 4}).slice(1, 0, 2))); });
  EXPECT_TRUE(contains(text, "parameter 'weight' is not dense in memory")) << text;
}

// Case 18.
TEST_F(ConstructionTest, AllRanksStartFromTheRootsValues) {
  for (const int root : {0, size() - 1}) {
    for (const bool shares : {false, true}) {
      auto model = std::make_shared<Layers>(kWidths);
      model->layers[0]->bias.set_requires_grad(false);
      model->register_buffer("counter", torch::full({2}, rank() + 7, at::kLong));
      const torch::NoGradGuard no_grad;
      for (auto& parameter : model->parameters()) parameter.fill_(rank() + 1.5);
      const auto wrapper = wrap(model, {.shares_parameters = shares, .root = root});
      for (const auto& parameter : model->parameters()) {
        EXPECT_TRUE(at::equal(parameter, torch::full_like(parameter, root + 1.5)));
      }
      EXPECT_TRUE(at::equal(model->named_buffers()["counter"], torch::full({2}, root + 7, at::kLong)));
    }
  }
}

// Case 18.
TEST_F(ConstructionTest, AnyRankCanGiveItsStateToAll) {
  for (const bool shares : {false, true}) {
    auto model = std::make_shared<Layers>(kWidths);
    model->register_buffer("counter", torch::zeros({2}));
    const auto wrapper = wrap(model, {.shares_parameters = shares});
    const torch::NoGradGuard no_grad;
    for (int root = 0; root < size(); ++root) {
      wrapper->write_parameters([&] {
        for (auto& parameter : model->parameters()) parameter.fill_(rank() + 0.5);
      });
      model->named_buffers()["counter"].fill_(rank() + 0.25);
      wrapper->broadcast_state(root);
      // A shared copy was written by one rank for all: rank 0.
      const double expected = shares && collectives_->local_size() > 1 ? 0.5 : root + 0.5;
      for (const auto& parameter : model->parameters()) {
        EXPECT_TRUE(at::equal(parameter, torch::full_like(parameter, expected)));
      }
      EXPECT_TRUE(at::equal(model->named_buffers()["counter"], torch::full({2}, root + 0.25)));
    }
  }
}

// Case 19.
TEST_F(ConstructionTest, BroadcastsTensorsOfAnyTypeAndLayoutFromEveryRoot) {
  const std::vector<at::ScalarType> types = {at::kHalf, at::kFloat, at::kDouble};
  const auto tensors_of = [&](int owner) {
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < 30; ++i) {
      const at::Tensor values = torch::arange(60, types[static_cast<std::size_t>(i / 10)]).add(i + 60 * owner);
      tensors.push_back(i % 2 == 0 ? values : values.view({6, 10}).slice(1, 0, 5).t());
    }
    return tensors;
  };
  for (int root = 0; root < size(); ++root) {
    for (const bool is_fast : {false, true}) {
      const std::vector<at::Tensor> expected = tensors_of(root);
      const std::vector<at::Tensor> tensors = tensors_of(rank());
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (is_fast) {
          broadcast(tensors[i], *collectives_, root);
        } else {
          broadcast(tensors[i], world_, root);
        }
        EXPECT_TRUE(at::equal(tensors[i], expected[i])) << i << " from " << root;
      }
    }
  }
}

/// Plain gradient descent through a wrapper of its own.
void descend(DistributedDataParallel& wrapper, Layers& model, int rank, int first_step, int steps) {
  const torch::AutoGradMode grad(true);
  for (int step = first_step; step < first_step + steps; ++step) {
    const batch::Batch batch = batch_of(rank, step, kWidths);
    drop_gradients(model);
    models::total_loss(model.losses(wrapper.forward(batch.input()), batch.target())).backward();
    const torch::NoGradGuard no_grad;
    for (auto& parameter : model.parameters()) parameter.sub_(parameter.grad(), 0.25);
  }
}

// Case 20.
TEST_F(ConstructionTest, AWrapperAndItsCommunicatorCanBeReplaced) {
  auto model = std::make_shared<Layers>(kWidths);
  auto expected = std::make_shared<Layers>(kWidths);
  descend(*wrap(expected), *expected, rank(), 0, 12);
  for (int part = 0; part < 2; ++part) {
    collectives_ = make_collectives();
    auto wrapper = wrap(model);
    descend(*wrapper, *model, rank(), 6 * part, 6);
    wrapper.reset();
    collectives_.reset();
  }
  expect_equal(values_of(*model), values_of(*expected));
  // Nobody averages any more, and the gradients are there although who made their memory is gone.
  const double before = model->layers[0]->weight.grad().sum().item<double>();
  EXPECT_TRUE(std::isfinite(before));
  drop_gradients(*model);
  loss_of(*model, batch_of(rank(), 0, kWidths)).backward();
  EXPECT_EQ(is_same_everywhere(model->layers[0]->weight.grad()), size() == 1);
}

// Case 20.
TEST_F(ConstructionTest, AGraphMayOutliveTheWrapper) {
  for (const bool is_static : {false, true}) {
    auto model = std::make_shared<Layers>(kWidths);
    auto wrapper = wrap(model, {.reducer = {.finds_unused = !is_static, .has_static_graph = is_static}});
    const batch::Batch batch = batch_of(rank(), 0, kWidths);
    const at::Tensor loss = models::total_loss(model->losses(wrapper->forward(batch.input()), batch.target()));
    wrapper.reset();
    loss.backward();
    Layers alone(kWidths);
    loss_of(alone, batch).backward();
    expect_gradients(*model, gradients_of(alone));
  }
}

// Case 21.
TEST_F(ConstructionTest, AModelThatIsWrappedAlreadyIsRefused) {
  auto model = std::make_shared<Layers>(kWidths);
  auto wrapper = wrap(model);
  const std::string text = refusal([&] { wrap(model); });
  EXPECT_TRUE(contains(text, "parameter 'l0.weight' belongs to another wrapper")) << text;
  descend(*wrapper, *model, rank(), 0, 2);  // the first is as it was
  EXPECT_TRUE(is_same_everywhere(model->layers[0]->weight));
  wrapper.reset();
  EXPECT_NO_THROW(wrap(model));
}

// Case 21: a parameter whose gradient cannot lie in a bucket.
TEST_F(ConstructionTest, AWrappedSparseParameterIsRefused) {
  struct Table : models::Model {
    Table() { register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true)).ptr()); }
    at::Tensor forward(const at::Tensor& input) override { return input; }
  };
  auto model = std::make_shared<Table>();
  const auto wrapper = wrap(model);
  EXPECT_TRUE(contains(refusal([&] { wrap(model); }), "parameter 'table.weight' belongs to another wrapper"));
}

TEST_F(ConstructionTest, FrozenParametersStayAndTheOthersTrain) {
  auto model = std::make_shared<Layers>(kWidths);
  model->layers[0]->weight.set_requires_grad(false);
  const auto wrapper = wrap(model);
  auto optimizer = make_optimizer(wrapper->parameters(), {{"name", "sgd"}});
  const at::Tensor frozen = model->layers[0]->weight.clone();
  const at::Tensor trained = model->layers[1]->weight.clone();
  wrapper->train_step(batch_of(rank(), 0, kWidths), optimizer, 1.0);
  EXPECT_TRUE(at::equal(model->layers[0]->weight, frozen));
  EXPECT_FALSE(at::equal(model->layers[1]->weight, trained));
}

}  // namespace construction_test
}  // namespace lockstep::parallel
