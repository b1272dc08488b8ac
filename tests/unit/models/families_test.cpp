// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "models/layers/outline.hpp"
#include "models/script/parameter_roles.hpp"

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

// The head reads one token of the last block. The golden cases of timm show that outputs and gradients stay the same.
TEST(VitTest, TheLastBlockComputesOnlyTheTokenThatIsRead) {
  for (const auto& [pool, tokens] : {std::pair<std::string, std::int64_t>{"token", 1}, {"avg", 5}}) {
    const auto model = built({{"name", "vit"},
                              {"embed_dim", "12"},
                              {"depth", "2"},
                              {"num_heads", "3"},
                              {"patch_size", "8"},
                              {"global_pool", pool}},
                             photos(16));
    std::map<std::string, at::Tensor> outputs;
    const ScopedTap tap([&](Block& block, const Tensors& inputs, const Forward& next) {
      Tensors results = next(inputs);
      outputs[block.path()] = results.front();
      return results;
    });
    run(*model, torch::randn({2, 3, 16, 16}, at::kDouble));
    EXPECT_EQ(outputs.at("blocks.0").sizes(), (std::vector<std::int64_t>{2, 5, 12})) << pool;
    EXPECT_EQ(outputs.at("blocks.1").sizes(), (std::vector<std::int64_t>{2, tokens, 12})) << pool;
    EXPECT_EQ(outputs.at("blocks.1.mlp").sizes(), (std::vector<std::int64_t>{2, tokens, 12})) << pool;
  }
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

// The result for a sample does not depend on the other samples with GroupNorm.
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
            "model.norm (test): for unet, choose one of: batch, group, none");
  EXPECT_EQ(refusal({{"name", "unet"}, {"norm", "group"}, {"width", "12"}}, masks(16, 16)),
            "model.width (test): with model.norm=group, the width must be a multiple of 8");
}

TEST(UnetResNetTest, AnySizeFrom32PixelsIsPossible) {
  const Keys keys = {{"name", "unet_resnet18"}, {"width", "4"}, {"decoder_widths", "8,8,4,4,4"}};
  const auto model = built(keys, masks(33, 50));
  EXPECT_EQ(run(*model, torch::randn({2, 3, 33, 50}, at::kDouble)).sizes(), (std::vector<std::int64_t>{2, 4, 33, 50}));
  EXPECT_EQ(refusal(keys, masks(31, 64)),
            "model.name: unet_resnet18 needs images of at least 32 x 32 pixels, but they have 31 x 64; make them "
            "larger in data.transform");
  EXPECT_EQ(refusal(keys, photos(32)),
            "model.name: unet_resnet18 needs a target for each pixel: masks of classes (data.target=mask) or fields "
            "of real numbers");
  EXPECT_EQ(refusal({{"name", "unet_resnet18"}, {"decoder_widths", "8,8"}}, masks(32, 32)),
            "model.decoder_widths (test): unet_resnet18 has 5 levels, but there are 2 widths; give one for each level");
  EXPECT_EQ(refusal({{"name", "unet_resnet18"}, {"stem", "small"}}, masks(32, 32)),
            "model.stem (test): the encoder of unet_resnet18 has the stem imagenet; reset the key");
}

std::map<std::string, at::Tensor> parameters_of(const Model& model) {
  std::map<std::string, at::Tensor> parameters;
  for (const auto& item : model.named_parameters()) parameters[item.key()] = item.value();
  return parameters;
}

// Deviations of initial values, within 5 standard errors of those by the formulas of torchvision.
TEST(MobileTest, InitialValuesAreThoseOfTorchvision) {
  const auto expect_deviation = [](const at::Tensor& values, double expected) {
    const double count = static_cast<double>(values.numel());
    EXPECT_NEAR(values.std().item<double>(), expected, 5 * expected / std::sqrt(2 * count));
    EXPECT_NEAR(values.mean().item<double>(), 0, 5 * expected / std::sqrt(count));
  };
  for (const char* name : {"mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0"}) {
    SCOPED_TRACE(name);
    const bool is_efficient = std::string(name) == "efficientnet_b0";
    const auto model = built({{"name", name}}, photos(32));
    auto parameters = parameters_of(*model);
    const at::Tensor stem = parameters.at("features.0.0.weight");
    expect_deviation(stem, std::sqrt(2.0 / static_cast<double>(stem.size(0) * 9)));
    const at::Tensor head = parameters.at(model->anatomy().head + ".weight");
    // Uniform in +-1/sqrt(10) or normal.
    expect_deviation(head, is_efficient ? std::sqrt(1.0 / 30) : 0.01);
    for (const auto& [key, value] : parameters) {
      if (!key.ends_with("bias")) continue;
      EXPECT_EQ(value.abs().sum().item<double>(), 0) << key;
    }
  }
}

TEST(MobileTest, ChannelsAreMultiplesOf8) {
  const auto model = built({{"name", "mobilenet_v2"}, {"width_mult", "0.35"}}, photos(32));
  auto parameters = parameters_of(*model);
  // 32 * 0.35 = 11.2: 8 would be less than 0.9 of it. 1280 does not become less.
  EXPECT_EQ(parameters.at("features.0.0.weight").size(0), 16);
  EXPECT_EQ(parameters.at("features.18.0.weight").size(0), 1280);
  EXPECT_EQ(refusal({{"name", "efficientnet_b0"}}, photos(31)),
            "model.name: efficientnet_b0 needs images of at least 32 x 32 pixels, but they have 31 x 31; make them "
            "larger in data.transform");
}

// Dropout and stochastic depth change the outputs of training and not those of evaluation with the defaults.
TEST(MobileTest, DropsInTrainingOnly) {
  for (const char* name : {"mobilenet_v3_small", "efficientnet_b0"}) {
    const auto model = built({{"name", name}, {"width_mult", "0.25"}}, photos(32));
    const at::Tensor images = torch::randn({8, 3, 32, 32}, at::kDouble);
    EXPECT_FALSE(at::equal(run(*model, images), run(*model, images))) << name;
    model->eval();
    EXPECT_TRUE(at::equal(run(*model, images), run(*model, images))) << name;
  }
}

// Keys that are set precede the sizes of the model, which precede those of its family. Words without a key are texts.
TEST(FamilyTest, SizesStandForKeysThatAreLeftToTheModel) {
  const families::FamilyRow family{
      .name = "line",
      .help = "any",
      .keys = {keys::integer("model.line_width", "0", "", 0),
               keys::choice("model.line_kind", "auto", "", {"auto", "a"}),
               keys::real("model.line_rate", "-1", "", -1, 1), keys::integers("model.line_list", "", "")},
      .sizes = {{"line_width", "3"}, {"line_kind", "a"}, {"line_rate", "0.25"}, {"line_list", "1,2"}},
      .presets = {{.name = "line_a"}, {.name = "line_b", .help = "b", .sizes = {{"line_width", "5"}, {"word", "x"}}}},
      .head = {"absent", "out"},
      .undecayed = {"out.weight"}};
  Section seen;
  const std::vector<ModelRow> rows = models_of(family, [&seen](const Section& model, const Task& task) {
    struct Line : Model {
      explicit Line(std::int64_t classes) { register_module("out", std::make_shared<Linear>(2, classes)); }
    };
    seen = model;
    return std::make_shared<Line>(task.classes);
  });
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].help, "any");
  EXPECT_EQ(rows[1].help, "b");
  const auto build_line = [&rows](const Keys& keys) {
    Section model = Section::with_defaults("model", model_keys(rows));
    for (const auto& [key, text] : keys) model.set(key, text, "test");
    return build(model, {.sample_shape = {2}, .classes = 3}, 1, at::kFloat, rows);
  };
  const auto first = build_line({{"name", "line_a"}});
  EXPECT_EQ(seen.integer("line_width"), 3);
  EXPECT_EQ(seen.text("line_kind"), "a");
  EXPECT_EQ(seen.real("line_rate"), 0.25);
  EXPECT_EQ(seen.integers("line_list"), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(seen.cite("line_width"), "model.line_width (default)");
  EXPECT_FALSE(seen.has("word"));
  EXPECT_EQ(first->anatomy().head, "out");
  EXPECT_TRUE(parameter_roles(*first).front().is_undecayed);
  build_line({{"name", "line_b"}});
  EXPECT_EQ(seen.integer("line_width"), 5);
  EXPECT_EQ(seen.text("word"), "x");
  build_line({{"name", "line_b"}, {"line_width", "7"}, {"line_list", "4"}});
  EXPECT_EQ(seen.integer("line_width"), 7);
  EXPECT_EQ(seen.integers("line_list"), (std::vector<std::int64_t>{4}));
}

// The outline of a model has its names, shapes and types, and leaves what is created afterwards alone.
TEST(OutlineTest, HasShapesButNoMemory) {
  for (const ModelRow& row : builtin_models()) {
    if (row.name == "torchscript" || row.name == "gpt") continue;
    SCOPED_TRACE(row.name);
    const bool has_fields = row.name.starts_with("unet") || row.name == "fno";
    const Task task = has_fields ? masks(32, 32) : photos(row.name.ends_with("dinov2") ? 28 : 32);
    Section keys = Section::with_defaults("model", model_keys());
    keys.set("name", row.name, "test");
    const auto model = outline(keys, task, at::kBFloat16);
    EXPECT_FALSE(model->parameters().empty());
    for (const at::Tensor& parameter : model->parameters()) {
      ASSERT_TRUE(parameter.is_meta());
      ASSERT_EQ(parameter.scalar_type(), at::kBFloat16);
    }
    for (const at::Tensor& buffer : model->buffers()) ASSERT_TRUE(buffer.is_meta());
  }
  EXPECT_TRUE(torch::ones({2}).is_cpu());
}

// A Section throws std::logic_error for other keys.
TEST(FamilyTest, ARowDeclaresTheKeysThatItReads) {
  for (const ModelRow& row : builtin_models()) {
    if (row.name == "torchscript") continue;  // it needs an archive
    const Task text{.sample_shape = {8}, .classes = 5, .is_text = true};
    const bool has_fields = row.name.starts_with("unet") || row.name == "fno";
    const Task images = has_fields ? masks(32, 32) : photos(row.name.ends_with("dinov2") ? 28 : 32);
    Section keys = Section::with_defaults("model", model_keys({row}));
    keys.set("name", row.name, "test");
    EXPECT_NO_THROW(outline(keys, row.name == "gpt" ? text : images, at::kFloat)) << row.name;
  }
}

// Sizes that are 0 are those of the model.
TEST(FamilyTest, GptAndVitShareTheNamesOfTheirSizes) {
  const Task text{.sample_shape = {8}, .classes = 5, .is_text = true};
  const auto own = built({{"name", "gpt"}}, text);
  EXPECT_EQ(own->named_parameters()["tokens.weight"].sizes(), at::IntArrayRef({5, 128}));
  EXPECT_TRUE(own->named_children().contains("block3"));
  EXPECT_FALSE(own->named_children().contains("block4"));
  EXPECT_EQ(count_of(*built({{"name", "gpt"}, {"depth", "0"}, {"num_heads", "0"}, {"embed_dim", "0"}}, text)),
            count_of(*own));
  EXPECT_EQ(refusal({{"name", "unet"}, {"depth", "49"}}, masks(32, 32)),
            "model.depth (test): unet has at most 48 levels");
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
  // A difference of 25 is 0.5 in standardized units.
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
            "model.norm (test): for mlp, choose one of: none, batch, layer");
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
