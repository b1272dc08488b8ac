// SPDX-License-Identifier: BSD-3-Clause
#include "families/public_model.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::testing {
namespace public_model_test {

using namespace families;
using Arguments = std::vector<std::pair<std::string, std::string>>;

/// The shapes of a vision transformer for images of 32 x 32 with patches of 8 x 8.
TrainedModel small_vit() {
  TrainedModel model{.name = "vit", .keys = {{"num_heads", "2"}}, .height = 32, .width = 32};
  model.shapes = {{"cls_token", {1, 1, 24}},
                  {"pos_embed", {1, 17, 24}},
                  {"patch_embed.proj.weight", {24, 3, 8, 8}},
                  {"head.weight", {5, 24}},
                  {"norm.weight", {24}}};
  for (const std::string block : {"blocks.0.", "blocks.1."}) {
    model.shapes[block + "norm1.weight"] = {24};
    model.shapes[block + "attn.qkv.bias"] = {72};
    model.shapes[block + "mlp.fc1.weight"] = {96, 24};
  }
  return model;
}

TrainedModel resnet(const std::string& name, std::int64_t kernel, std::int64_t width) {
  TrainedModel model{.name = name, .height = 64, .width = 64};
  model.shapes = {{"conv1.weight", {width, 3, kernel, kernel}}, {"fc.weight", {4, 8 * width}}};
  return model;
}

TrainedModel convnext(const std::vector<std::int64_t>& depths, const std::vector<std::int64_t>& widths) {
  TrainedModel model{.name = "convnext", .height = 64, .width = 64};
  model.shapes = {{"stem.0.weight", {widths[0], 3, 4, 4}}, {"head.fc.weight", {3, widths.back()}}};
  for (std::size_t s = 0; s < depths.size(); ++s) {
    for (std::int64_t i = 0; i < depths[s]; ++i) {
      model.shapes["stages." + std::to_string(s) + ".blocks." + std::to_string(i) + ".gamma"] = {widths[s]};
    }
  }
  return model;
}

std::string refusal(const std::string& library, const TrainedModel& model) {
  try {
    public_model(library, model);
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.fault(), CheckpointFault::incompatible);
    return error.what();
  }
  return "";
}

TEST(PublicModelTest, CallsOfTorchvision) {
  EXPECT_EQ(python_call(public_model("torchvision", resnet("resnet18", 7, 64))),
            "torchvision.models.resnet18(num_classes=4)");
  EXPECT_EQ(python_call(public_model("torchvision", small_vit())),
            "torchvision.models.VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=2, "
            "hidden_dim=24, mlp_dim=96, num_classes=5)");
  EXPECT_EQ(python_call(public_model("torchvision", convnext({3, 3, 9, 3}, {96, 192, 384, 768}))),
            "torchvision.models.convnext_tiny(num_classes=3)");
  EXPECT_EQ(python_call(public_model("torchvision", convnext({1, 2}, {8, 16}))),
            "torchvision.models.ConvNeXt(block_setting=[torchvision.models.convnext.CNBlockConfig(8, 16, 1), "
            "torchvision.models.convnext.CNBlockConfig(16, None, 2)], num_classes=3)");
}

TEST(PublicModelTest, WidthsOfMobileNets) {
  TrainedModel model{.name = "mobilenet_v2", .keys = {{"width_mult", "0.5"}}};
  model.shapes = {{"features.0.0.weight", {16, 3, 3, 3}}, {"classifier.1.weight", {7, 1280}}};
  EXPECT_EQ(python_call(public_model("torchvision", model)),
            "torchvision.models.mobilenet_v2(width_mult=0.5, num_classes=7)");
  EXPECT_NE(refusal("timm", model).find("those of torchvision"), std::string::npos);
  model.name = "efficientnet_b0";
  EXPECT_NE(refusal("torchvision", model).find("model.width_mult = 0.5"), std::string::npos);
}

TEST(PublicModelTest, GroupsOfBottlenecks) {
  TrainedModel model = resnet("resnet50", 7, 64);
  model.shapes["layer1.0.conv2.weight"] = {128, 4, 3, 3};  // 32 groups of 4 channels
  model.shapes["layer1.0.conv3.weight"] = {256, 128, 1, 1};
  EXPECT_EQ(public_model("torchvision", model).arguments, (Arguments{{"groups", "32"}, {"width_per_group", "4"}}));
  EXPECT_EQ(public_model("timm", model).arguments, (Arguments{{"cardinality", "32"}, {"base_width", "4"}}));
}

TEST(PublicModelTest, ArgumentsOfTimm) {
  const PublicModel vit = public_model("timm", small_vit());
  EXPECT_EQ(vit.function, "vit_tiny_patch16_224");
  EXPECT_TRUE(vit.names.empty());
  EXPECT_EQ(vit.classes, 5);
  EXPECT_EQ(vit.arguments, (Arguments{{"img_size", "[32, 32]"},
                                      {"patch_size", "8"},
                                      {"embed_dim", "24"},
                                      {"depth", "2"},
                                      {"num_heads", "2"},
                                      {"mlp_ratio", "4"},
                                      {"class_token", "true"},
                                      {"reg_tokens", "0"},
                                      {"no_embed_class", "false"},
                                      {"global_pool", "\"token\""},
                                      {"qkv_bias", "true"},
                                      {"qk_norm", "false"},
                                      {"pre_norm", "false"}}));
  TrainedModel named = small_vit();
  named.name = "vit_b_32";
  EXPECT_EQ(public_model("timm", named).function, "vit_base_patch32_224");
  named.name = "deit3_small_patch16_224";
  named.shapes["pos_embed"] = {1, 16, 24};
  EXPECT_EQ(public_model("timm", named).function, named.name);
  EXPECT_EQ(public_model("timm", convnext({1, 1, 2, 1}, {8, 8, 16, 16})).arguments,
            (Arguments{{"depths", "[1, 1, 2, 1]"}, {"dims", "[8, 8, 16, 16]"}}));
}

// A ratio such that its product with 24 is truncated to 41.
TEST(PublicModelTest, RatioOfHiddenFeatures) {
  TrainedModel model = small_vit();
  model.shapes["blocks.0.mlp.fc1.weight"] = {41, 24};
  const PublicModel vit = public_model("timm", model);
  EXPECT_EQ(static_cast<std::int64_t>(24 * std::stod(vit.arguments[5].second)), 41);
}

TEST(PublicModelTest, SizesFromTheGridOfOlderCheckpoints) {
  TrainedModel model = small_vit();
  model.height = model.width = 0;
  EXPECT_EQ(public_model("torchvision", model).arguments[0].second, "32");
}

TEST(PublicModelTest, RefusalsAreOneSentence) {
  const auto expect = [](const std::string& library, const TrainedModel& model, const std::string& part) {
    const std::string text = refusal(library, model);
    EXPECT_NE(text.find(part), std::string::npos) << part << ": " << text;
    EXPECT_NE(text.find(model.name), std::string::npos) << text;
  };
  const auto vit_without = [](const std::string& name) {
    TrainedModel model = small_vit();
    model.shapes.erase(name);
    return model;
  };
  expect("timm", {.name = "mlp"}, "timm lacks this model");
  expect("torchvision", {.name = "vitamin"}, "torchvision lacks this model");
  expect("torchvision", resnet("resnet18", 3, 64), "model.stem = small");
  expect("timm", resnet("resnet18", 7, 8), "model.width = 8");
  expect("timm", {.name = "resnet18"}, "no 'conv1.weight'");
  expect("timm", convnext({1, 1}, {8, 8}), "2 stages");
  expect("torchvision", vit_without("cls_token"), "model.class_token = false");
  expect("torchvision", vit_without("blocks.0.attn.qkv.bias"), "model.qkv_bias = false");
  expect("torchvision", vit_without("head.weight"), "no head");
  TrainedModel gray = resnet("resnet34", 7, 64);
  gray.shapes["conv1.weight"][1] = 1;
  expect("torchvision", gray, "1 channels");
  EXPECT_EQ(refusal("timm", gray), "");
  TrainedModel wide = small_vit();
  wide.width = 40;
  expect("torchvision", wide, "grid of 20");
  wide.shapes["pos_embed"][1] = 21;
  expect("torchvision", wide, "not square");
}

TEST(PublicModelTest, NamesInTheOrderOfTheLibrary) {
  const PublicModel vit = public_model("torchvision", small_vit());
  const auto names = public_names(
      vit, {"cls_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias", "blocks.0.norm1.weight"});
  std::vector<std::string> theirs;
  for (const PublicName& name : names) theirs.push_back(name.theirs);
  EXPECT_EQ(theirs, (std::vector<std::string>{"class_token", "conv_proj.weight", "conv_proj.bias",
                                              "encoder.pos_embedding", "encoder.layers.encoder_layer_0.ln_1.weight"}));
  try {
    public_names(vit, {"cls_token", "reg_token"});
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find("'reg_token' has no counterpart"), std::string::npos) << error.what();
  }
}

}  // namespace public_model_test
}  // namespace lockstep::testing
