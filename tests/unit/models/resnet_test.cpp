// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/models/model.hpp>

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <vector>

namespace lockstep::models {
namespace resnet_test {

std::shared_ptr<Model> build_resnet(const char* width, std::int64_t channels, at::ScalarType dtype) {
  Section options = Section::with_defaults("model", model_keys());
  options.set("name", "resnet18", "test");
  options.set("width", width, "test");
  return build(options, Task{.sample_shape = {channels, 8, 8}, .classes = 10}, 1, dtype);
}

TEST(ResNetTest, TheImagenetStemHasAWideKernel) {
  Section options = Section::with_defaults("model", model_keys());
  options.set("name", "resnet18", "test");
  options.set("width", "4", "test");
  const auto parameter_count = [&options] {
    std::int64_t count = 0;
    const auto model = build(options, Task{.sample_shape = {3, 64, 64}, .classes = 10}, 1, at::kFloat);
    EXPECT_EQ(model->forward(torch::ones({2, 3, 64, 64})).sizes(), (std::vector<std::int64_t>{2, 10}));
    for (const at::Tensor& parameter : model->parameters()) count += parameter.numel();
    return count;
  };
  const std::int64_t small = parameter_count();
  options.set("stem", "imagenet", "test");
  EXPECT_EQ(parameter_count() - small, 4 * 3 * (7 * 7 - 3 * 3));
}

TEST(ResNetTest, TheImagenetStemRefusesSmallImages) {
  Section options = Section::with_defaults("model", model_keys());
  options.set("name", "resnet34", "test");
  const auto build_for = [&options](std::int64_t side) {
    return build(options, Task{.sample_shape = {3, side, 64}, .classes = 10}, 1, at::kFloat);
  };
  options.set("width", "8", "test");
  EXPECT_THROW(build_for(31), ConfigError);
  EXPECT_NO_THROW(build_for(32));
  options.set("stem", "small", "test");
  EXPECT_NO_THROW(build_for(8));
  options.set("groups", "2", "test");  // an option of a network without bottlenecks
  EXPECT_THROW(build_for(32), ConfigError);
}

TEST(ResNetTest, ResidualBranchesCanStartAtZero) {
  Section options = Section::with_defaults("model", model_keys());
  for (const auto& [key, value] : {std::pair{"name", "resnet50"}, {"width", "8"}, {"zero_init_residual", "true"}}) {
    options.set(key, value, "test");
  }
  const auto model = build(options, Task{.sample_shape = {3, 32, 32}, .classes = 10}, 1, at::kFloat);
  for (const auto& item : model->named_parameters()) {
    const double sum = item.value().abs().sum().item<double>();
    const bool is_last = item.key().ends_with("bn3.weight");
    if (is_last || item.key().ends_with("bn2.weight")) {
      EXPECT_EQ(sum == 0, is_last) << item.key();
    }
  }
}

/// The same network of torch::nn layers, with its layers in the order of registration.
class PlainResNet {
 public:
  PlainResNet(std::int64_t channels, std::int64_t width) {
    add(channels, width, 3, 1);
    for (const std::int64_t stage : {0, 1, 2, 3}) {
      const std::int64_t out = width << stage;
      const std::int64_t in = stage == 0 ? width : out / 2;
      add(in, out, 3, stage == 0 ? 1 : 2);
      add(out, out, 3, 1);
      if (stage > 0) add(in, out, 1, 2);
      add(out, out, 3, 1);
      add(out, out, 3, 1);
    }
    head_ = torch::nn::Linear(8 * width, 10);
    layers_.push_back(head_.ptr());
    for (const auto& layer : layers_) layer->to(at::kDouble);
  }

  at::Tensor forward(const at::Tensor& input) {
    next_ = 0;
    at::Tensor x = at::relu(convolved(input));
    for (const bool is_first_stage : {true, false, false, false}) {
      for (const bool is_first_unit : {true, false}) {
        const at::Tensor body = convolved(at::relu(convolved(x)));
        x = at::relu(body + (is_first_unit && !is_first_stage ? convolved(x) : x));
      }
    }
    return head_(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

  const std::vector<std::shared_ptr<torch::nn::Module>>& layers() const { return layers_; }
  std::vector<at::Tensor> parameters() const {
    return all([](auto& layer) { return layer.parameters(); });
  }
  std::vector<at::Tensor> buffers() const {
    return all([](auto& layer) { return layer.buffers(); });
  }

 private:
  template <class Get>
  std::vector<at::Tensor> all(const Get& get) const {
    std::vector<at::Tensor> tensors;
    for (const auto& layer : layers_) {
      for (const at::Tensor& tensor : get(*layer)) tensors.push_back(tensor);
    }
    return tensors;
  }

  void add(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
    const auto options = torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false);
    convs_.push_back(torch::nn::Conv2d(options));
    norms_.push_back(torch::nn::BatchNorm2d(out));
    layers_.push_back(convs_.back().ptr());
    layers_.push_back(norms_.back().ptr());
  }

  at::Tensor convolved(const at::Tensor& input) {
    const std::size_t position = next_++;
    return norms_[position](convs_[position](input));
  }

  std::vector<torch::nn::Conv2d> convs_;
  std::vector<torch::nn::BatchNorm2d> norms_;
  torch::nn::Linear head_{nullptr};
  std::vector<std::shared_ptr<torch::nn::Module>> layers_;
  std::size_t next_ = 0;
};

TEST(ResNetTest, HasThePublishedNumberOfParameters) {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : build_resnet("64", 3, at::kFloat)->parameters()) count += parameter.numel();
  EXPECT_EQ(count, 11173962);
}

TEST(ResNetTest, EqualsTheNetworkOfTorchsLayers) {
  for (const std::int64_t channels : {1, 3}) {
    const auto model = build_resnet("4", channels, at::kDouble);
    PlainResNet plain(channels, 4);
    const std::vector<at::Tensor> ours = model->parameters();
    const std::vector<at::Tensor> theirs = plain.parameters();
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      ASSERT_EQ(ours[i].sizes(), theirs[i].sizes()) << i;
      theirs[i].detach().copy_(ours[i].detach());
    }
    const at::Tensor target = torch::tensor({3L, 0L, 9L});
    for (int step = 0; step < 2; ++step) {  // gradients accumulate, running statistics move on
      const at::Tensor images = torch::randn({3, channels, 8, 8}, at::kDouble);
      const at::Tensor expected = plain.forward(images);
      const at::Tensor output = run(*model, images);
      EXPECT_TRUE(at::allclose(output, expected, 1e-9, 1e-9));
      cross_entropy(expected, target).backward();
      cross_entropy(output, target).backward();
    }
    // Sums over pixels in another order; three samples make for small variances, which magnify rounding.
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_TRUE(at::allclose(ours[i].grad(), theirs[i].grad(), 1e-7, 1e-9)) << i;
    }
    for (std::size_t i = 0; i < plain.buffers().size(); ++i) {
      EXPECT_TRUE(
          at::allclose(model->buffers()[i], plain.buffers()[i].to(model->buffers()[i].scalar_type()), 1e-9, 1e-12))
          << i;
    }
    model->eval();
    for (const auto& layer : plain.layers()) layer->eval();
    const at::Tensor images = torch::randn({1, channels, 8, 8}, at::kDouble);
    EXPECT_TRUE(at::allclose(run(*model, images), plain.forward(images), 1e-9, 1e-9));
  }
}

// Layers where normalization, sum and ReLU are one.
TEST(ResNetTest, FloatFollowsDouble) {
  const auto model = build_resnet("16", 3, at::kFloat);
  PlainResNet plain(3, 16);
  const std::vector<at::Tensor> ours = model->parameters();
  const std::vector<at::Tensor> theirs = plain.parameters();
  for (std::size_t i = 0; i < ours.size(); ++i) theirs[i].detach().copy_(ours[i].detach());
  torch::manual_seed(4);
  const at::Tensor images = torch::randn({16, 3, 16, 16});
  const at::Tensor target = torch::randint(10, {16});
  for (int step = 0; step < 3; ++step) {
    const at::Tensor loss = cross_entropy(run(*model, images), target);
    const at::Tensor expected = cross_entropy(plain.forward(images.to(at::kDouble)), target);
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-4) << step;
    loss.backward();
    expected.backward();
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const double size = theirs[i].grad().norm().item<double>();
      EXPECT_LE((ours[i].grad().to(at::kDouble) - theirs[i].grad()).norm().item<double>(), 1e-3 * size + 1e-6)
          << model->named_parameters().items()[i].key() << " at step " << step;
      for (const auto& parameters : {ours, theirs}) {
        parameters[i].sub_(parameters[i].grad(), 0.01);
        parameters[i].mutable_grad().reset();
      }
    }
  }
}

TEST(ResNetTest, NamesAreThoseOfPublishedWeights) {
  const auto parameters = build_resnet("4", 3, at::kFloat)->named_parameters();
  std::vector<std::string> names;
  for (const auto& parameter : parameters) names.push_back(parameter.key());
  const std::vector<std::string> stem = {"conv1.weight", "bn1.weight", "bn1.bias", "layer1.0.conv1.weight"};
  EXPECT_EQ(std::vector<std::string>(names.begin(), names.begin() + 4), stem);
  for (const char* name : {"layer2.0.downsample.0.weight", "layer4.1.bn2.bias", "fc.weight"}) {
    EXPECT_TRUE(parameters.contains(name)) << name;
  }
  EXPECT_FALSE(parameters.contains("layer1.0.downsample.0.weight"));
}

TEST(BatchNormTest, FollowsPyTorch) {
  for (const std::optional<double> momentum : {std::optional<double>(0.1), std::optional<double>()}) {
    for (const bool is_affine : {true, false}) {
      BatchNorm ours(3, {.eps = 1e-3, .momentum = momentum, .is_affine = is_affine});
      torch::nn::BatchNorm2d theirs(torch::nn::BatchNorm2dOptions(3).eps(1e-3).momentum(momentum).affine(is_affine));
      for (int step = 0; step < 3; ++step) {
        const at::Tensor input = torch::randn({2, 3, 4, 4});
        EXPECT_TRUE(at::equal(run(ours, input), theirs(input)));
      }
      EXPECT_EQ(ours.parameters().size(), is_affine ? 2U : 0U);
      for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(ours.buffers()[i], theirs->buffers()[i]));
      ours.eval();
      theirs->eval();
      const at::Tensor input = torch::randn({1, 3, 1, 1});
      EXPECT_TRUE(at::equal(run(ours, input), theirs(input)));
      EXPECT_EQ(ours.num_batches_tracked.item<std::int64_t>(), 3);
    }
  }
}

TEST(BatchNormTest, TakesAnyNumberOfDimensions) {
  BatchNorm layer(3);
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{4, 3}, {4, 3, 5}, {4, 3, 2, 2, 2}}) {
    const at::Tensor output = run(layer, torch::randn(shape, at::kDouble).to(at::kFloat));
    EXPECT_EQ(output.sizes(), at::IntArrayRef(shape));
    EXPECT_NEAR(output.select(1, 0).mean().item<double>(), 0.0, 1e-6);
  }
}

TEST(BatchNormTest, OneValuePerChannelCannotBeTrainedOn) {
  BatchNorm layer(3);
  EXPECT_THROW(layer.forward(torch::zeros({1, 3})), ConfigError);
  EXPECT_THROW(layer.forward(torch::zeros({3})), c10::Error);
  layer.eval();
  EXPECT_NO_THROW(layer.forward(torch::zeros({1, 3})));
}

TEST(BatchNormTest, TrainingBatchesCanBeNormalizedByOthers) {
  BatchNorm layer(3, {.momentum = std::nullopt});
  std::vector<double> weights;
  layer.train_by([&](BatchNorm& self, const at::Tensor& input, double momentum) {
    EXPECT_EQ(&self, &layer);
    weights.push_back(momentum);
    return input * 2;
  });
  const at::Tensor ones = torch::ones({1, 3});
  EXPECT_TRUE(at::equal(run(layer, ones), ones * 2));
  EXPECT_TRUE(at::equal(run(layer, ones), ones * 2));
  EXPECT_EQ(weights, (std::vector<double>{1.0, 0.5}));
  layer.train_by({});
  EXPECT_THROW(layer.forward(ones), ConfigError);
}

}  // namespace resnet_test
}  // namespace lockstep::models
