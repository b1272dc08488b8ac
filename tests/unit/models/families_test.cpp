// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/model.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>
#include <string>
#include <vector>

#include "models/parameter_roles.hpp"

namespace lockstep::models {
namespace families_test {

using Keys = std::map<std::string, std::string>;

std::shared_ptr<Model> built(const Keys& keys, const Task& task, at::ScalarType dtype = at::kDouble) {
  Section model = Section::with_defaults("model", model_keys());
  for (const auto& [key, text] : keys) model.set(key, text, "test");
  return build(model, task, 1, dtype);
}

std::string refusal(const Keys& keys, const Task& task) {
  try {
    built(keys, task);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

Task photos(std::int64_t side) { return {.sample_shape = {3, side, side}, .classes = 10}; }

Task masks(std::int64_t height, std::int64_t width) {
  return {.sample_shape = {3, height, width}, .classes = 4, .kind = TaskKind::segmentation};
}

std::int64_t count_of(const Model& model) {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) count += parameter.numel();
  return count;
}

const Keys kSmallConvNext = {{"name", "convnext"}, {"depths", "1,2"}, {"widths", "4,8"}};

// Stem, 3 blocks, the convolution between the stages, head: by the sizes of the layers.
TEST(ConvNextTest, ParametersFollowFromTheOptions) {
  const auto block = [](std::int64_t c) { return c + 50 * c + 2 * c + (4 * c * c + 4 * c) + (4 * c * c + c); };
  const std::int64_t expected = (4 * 3 * 16 + 4) + 8 + block(4) + 8 + (8 * 4 * 4 + 8) + 2 * block(8) + 16 + 8 * 10 + 10;
  EXPECT_EQ(count_of(*built(kSmallConvNext, photos(32))), expected);
}

TEST(ConvNextTest, EachBlockIsALayer) {
  const auto model = built(kSmallConvNext, photos(32));
  std::map<std::string, std::int64_t> after;
  for (const ParameterRole& role : parameter_roles(*model)) after[role.name] = role.layers_after;
  EXPECT_EQ(after.at("stem.1.bias"), 4);
  EXPECT_EQ(after.at("stages.0.blocks.0.gamma"), 3);
  EXPECT_EQ(after.at("stages.1.downsample.1.weight"), 2);
  EXPECT_EQ(after.at("stages.1.blocks.0.conv_dw.weight"), 2);
  EXPECT_EQ(after.at("stages.1.blocks.1.mlp.fc2.bias"), 1);
  EXPECT_EQ(after.at("head.norm.weight"), 0);
}

// A dropped branch leaves the input of the block; with a probability close to 1, almost all are dropped.
TEST(ConvNextTest, BranchesAreDroppedInTrainingOnly) {
  Keys keys = kSmallConvNext;
  keys["drop_path"] = "0.9";
  const auto model = built(keys, photos(32));
  const torch::NoGradGuard no_grad;
  for (const auto& item : model->named_parameters()) {
    if (item.key().ends_with("gamma")) item.value().fill_(1);
  }
  const at::Tensor images = torch::randn({8, 3, 32, 32}, at::kDouble);
  EXPECT_FALSE(at::equal(run(*model, images), run(*model, images)));
  model->eval();
  EXPECT_TRUE(at::equal(run(*model, images), run(*model, images)));
}

TEST(ConvNextTest, SizesThatDoNotFitAreRefused) {
  EXPECT_EQ(
      refusal({{"name", "convnext_tiny"}}, photos(31)),
      "model.name: convnext_tiny needs images of at least 32 x 32 pixels, but they have 31 x 31; make them larger "
      "in data.transform");
  EXPECT_EQ(refusal({{"name", "convnext"}, {"depths", "1,1"}}, photos(32)),
            "model.depths (test): there are 2 stages, but model.widths has 4; give each stage a depth and a width");
}

TEST(UnetTest, OutputsAreAsLargeAsTheInputs) {
  for (const char* up : {"transposed", "bilinear"}) {
    for (const char* norm : {"batch", "group", "none"}) {
      const auto model =
          built({{"name", "unet"}, {"width", "8"}, {"depth", "3"}, {"up", up}, {"norm", norm}}, masks(8, 13));
      EXPECT_EQ(run(*model, torch::randn({2, 3, 8, 13}, at::kDouble)).sizes(), (std::vector<std::int64_t>{2, 4, 8, 13}))
          << up << " " << norm;
    }
  }
}

// With GroupNorm, the result for a sample does not depend on the other samples.
TEST(UnetTest, GroupsOfChannelsDoNotMixSamples) {
  const auto model = built({{"name", "unet"}, {"width", "8"}, {"depth", "1"}, {"norm", "group"}}, masks(4, 4));
  const at::Tensor images = torch::randn({2, 3, 4, 4}, at::kDouble);
  EXPECT_TRUE(at::allclose(run(*model, images)[0], run(*model, images.slice(0, 0, 1))[0], 1e-12, 1e-12));
}

TEST(UnetTest, RefusalsSayWhatFits) {
  EXPECT_EQ(refusal({{"name", "unet"}}, masks(15, 64)),
            "model.depth (default): 4 levels need images of at least 16 x 16 pixels, but they have 15 x 64");
  EXPECT_EQ(refusal({{"name", "unet"}}, photos(16)),
            "model.name: unet needs a target for each pixel: masks of classes (data.target=mask) or fields of real "
            "numbers");
  EXPECT_EQ(refusal({{"name", "unet"}, {"head", "real"}}, masks(16, 16)),
            "model.head (test): the targets of the data are classes or labels; use classes");
  EXPECT_EQ(refusal({{"name", "unet"}, {"norm", "layer"}}, masks(16, 16)),
            "model.norm (test): unet has none, batch or group");
  EXPECT_EQ(refusal({{"name", "unet"}, {"norm", "group"}, {"width", "12"}}, masks(16, 16)),
            "model.width (test): with model.norm=group, the width must be a multiple of 8");
}

Task table_task() {
  return {.sample_shape = {2},
          .classes = 1,
          .kind = TaskKind::regression,
          .input_moments = {.mean = {10, 20}, .deviation = {2, 4}},
          .target_moments = {.mean = {100}, .deviation = {50}}};
}

TEST(MlpTest, DefaultsAreLinearLayersWithRelu) {
  const auto model = built({{"name", "mlp"}, {"hidden", "3,3"}}, {.sample_shape = {2}, .classes = 4});
  std::vector<std::string> names;
  for (const auto& item : model->named_parameters()) names.push_back(item.key());
  EXPECT_EQ(names, (std::vector<std::string>{"hidden0.weight", "hidden0.bias", "hidden1.weight", "hidden1.bias",
                                             "head.weight", "head.bias"}));
  EXPECT_TRUE(model->named_buffers().is_empty());
}

// Weights 1 and biases 0 of one hidden unit: the output is mean + deviation * activation(sum of standardized inputs).
TEST(MlpTest, StandardizedModelsComputeInTheUnitsOfTheData) {
  const auto model =
      built({{"name", "mlp"}, {"hidden", "1"}, {"activation", "tanh"}, {"standardize", "true"}}, table_task());
  const torch::NoGradGuard no_grad;
  for (const auto& item : model->named_parameters()) item.value().fill_(item.key().ends_with("weight") ? 1 : 0);
  const at::Tensor output = run(*model, torch::tensor({{12.0, 24.0}}, at::kDouble));
  EXPECT_NEAR(output.item<double>(), 100 + 50 * std::tanh(2.0), 1e-12);
  // In standardized units, a difference of 25 is 0.5.
  EXPECT_NEAR(total_loss(model->losses(output, output + 25)).item<double>(), 0.25, 1e-12);
  EXPECT_EQ(model->named_buffers().size(), 4U);
}

TEST(MlpTest, NormsAndResidualsAreOptions) {
  for (const char* norm : {"batch", "layer"}) {
    const auto model =
        built({{"name", "mlp"}, {"hidden", "3,3"}, {"norm", norm}, {"activation", "silu"}, {"residual", "true"}},
              table_task());
    EXPECT_TRUE(model->named_parameters().contains("norm1.bias"));
    const torch::NoGradGuard no_grad;
    // A last hidden layer of zeros adds nothing: the output is that of the layers before it.
    for (const char* name : {"hidden1.weight", "norm1.weight", "norm1.bias"}) {
      at::Tensor parameter = model->named_parameters()[name];
      parameter.zero_();
    }
    const at::Tensor input = torch::randn({4, 2}, at::kDouble);
    const at::Tensor before = run(*model, input);
    at::Tensor bias = model->named_parameters()["hidden1.bias"];
    bias.fill_(5);
    EXPECT_TRUE(at::allclose(run(*model, input), before, 1e-12, 1e-12)) << norm;
  }
  EXPECT_EQ(refusal({{"name", "mlp"}, {"norm", "group"}}, table_task()),
            "model.norm (test): mlp has none, batch or layer");
  EXPECT_EQ(refusal({{"name", "mlp"}, {"head", "classes"}}, table_task()),
            "model.head (test): the targets of the data are real numbers; use real");
}

TEST(MlpTest, MomentsMustFitTheSamples) {
  Task task = table_task();
  task.input_moments.mean = {1};
  EXPECT_EQ(
      refusal({{"name", "mlp"}, {"standardize", "true"}}, task),
      "model.standardize: there are 1 statistics for 2 values of the input; check input_moments of the task of the "
      "data set");
}

}  // namespace families_test
}  // namespace lockstep::models
