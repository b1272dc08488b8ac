// SPDX-License-Identifier: BSD-3-Clause
#include "families/recognition.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

namespace lockstep::testing {
namespace recognition_test {

using namespace families;
using checkpoints::parse_timm_config;
using checkpoints::TimmConfig;

using Keys = std::vector<std::pair<std::string, std::string>>;

ModelKeys keys_of(const std::string& text) { return describe_model(parse_timm_config(text, "config.json")).keys; }

std::string error_of(const std::string& text) {
  try {
    describe_model(parse_timm_config(text, "folder/config.json"));
    return "";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

TEST(RecognitionTest, ArgumentsOfTimmAreKeys) {
  EXPECT_EQ(keys_of(R"({"architecture": "vit_tiny_patch16_224.augreg_in21k", "global_pool": "token", "model_args":
                        {"img_size": [16, 16], "patch_size": 8, "init_values": null, "qkv_bias": false,
                         "drop_rate": 0.0}})"),
            (Keys{{"global_pool", "token"}, {"init_values", "0"}, {"patch_size", "8"}, {"qkv_bias", "false"}}));
  EXPECT_EQ(keys_of(R"({"architecture": "resnet50"})"), (Keys{{"stem", "imagenet"}}));
  EXPECT_EQ(keys_of(R"({"architecture": "convnext_tiny", "model_args": {"depths": [1, 1], "dims": [8, 16]}})"),
            (Keys{{"depths", "1,1"}, {"widths", "8,16"}}));
}

TEST(RecognitionTest, OtherModelsOfTimmHaveOneSentence) {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {R"({"architecture": "swin_tiny"})",
       "architecture 'swin_tiny' is not supported; choose one of: convnext_tiny, convnext_small"},
      {R"({"architecture": "mobilenet_v2"})", "architecture 'mobilenet_v2' is not supported"},
      {R"({"architecture": "vit"})", "architecture 'vit' is not supported"},
      {R"({"architecture": "resnet50", "model_args": {"stem_type": "deep"}})", "model_args.stem_type = \"deep\""},
      {R"({"architecture": "resnet50", "model_args": {"drop_rate": 0.5}})", "model_args.drop_rate = 0.5"},
  };
  for (const auto& [text, part] : rows) {
    const std::string error = error_of(text);
    EXPECT_TRUE(error.starts_with("folder/config.json: ")) << text << "\n" << error;
    EXPECT_NE(error.find(part), std::string::npos) << text << "\n" << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

std::optional<ModelDescription> identified(const TensorShapes& shapes) {
  for (const FamilyRow& family : builtin_families()) {
    if (auto description = identify_model(family, shapes)) return description;
  }
  return std::nullopt;
}

TensorShapes resnet_shapes(const std::vector<int>& units, bool has_bottlenecks, std::int64_t kernel) {
  TensorShapes shapes = {{"conv1.weight", {64, 3, kernel, kernel}}, {"fc.weight", {5, 512}}};
  for (std::size_t s = 0; s < units.size(); ++s) {
    for (int i = 0; i < units[s]; ++i) {
      const std::string unit = "layer" + std::to_string(s + 1) + "." + std::to_string(i);
      shapes[unit + ".conv1.weight"] = {128, 64, 1, 1};
      shapes[unit + ".conv2.weight"] = {128, 4, 3, 3};
      if (has_bottlenecks) shapes[unit + ".conv3.weight"] = {256, 128, 1, 1};
    }
  }
  return shapes;
}

TEST(RecognitionTest, FamiliesAreKnownByNamesAndShapes) {
  const auto resnet = identified(resnet_shapes({2, 2, 2, 2}, false, 3));
  ASSERT_TRUE(resnet);
  EXPECT_EQ(resnet->name, "resnet18");
  EXPECT_EQ(resnet->keys, (Keys{{"stem", "small"}}));
  EXPECT_EQ(resnet->classes, 5);
  const auto resnext = identified(resnet_shapes({3, 4, 6, 3}, true, 7));
  ASSERT_TRUE(resnext);
  EXPECT_EQ(resnext->name, "resnet50");
  EXPECT_EQ(resnext->keys, (Keys{{"stem", "imagenet"}, {"groups", "32"}, {"width_per_group", "4"}}));
  EXPECT_FALSE(identified(resnet_shapes({3, 4, 6, 4}, true, 7)));

  TensorShapes vit = {{"patch_embed.proj.weight", {128, 3, 8, 8}},
                      {"cls_token", {1, 1, 128}},
                      {"reg_token", {1, 4, 128}},
                      {"pos_embed", {1, 16, 128}},
                      {"blocks.0.norm1.weight", {128}},
                      {"blocks.1.norm1.weight", {128}},
                      {"blocks.0.mlp.fc1.weight", {256, 128}},
                      {"blocks.0.attn.qkv.bias", {384}},
                      {"blocks.0.ls1.gamma", {128}},
                      {"head.weight", {7, 128}}};
  const auto found = identified(vit);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->name, "vit");
  EXPECT_EQ(found->keys, (Keys{{"patch_size", "8"},
                               {"embed_dim", "128"},
                               {"depth", "2"},
                               {"num_heads", "2"},
                               {"mlp_ratio", "2"},
                               {"reg_tokens", "4"},
                               {"init_values", "1e-5"},
                               {"no_embed_class", "true"}}));
  EXPECT_EQ(found->classes, 7);
  vit["pos_embed"] = {1, 14, 128};  // 9 patches, a class token and 4 registers
  EXPECT_EQ(identified(vit)->keys.back().second, "false");

  const auto convnext = identified({{"stem.0.weight", {8, 3, 4, 4}},
                                    {"stages.0.blocks.0.gamma", {8}},
                                    {"stages.0.blocks.1.gamma", {8}},
                                    {"stages.1.blocks.0.gamma", {16}},
                                    {"head.fc.weight", {3, 16}}});
  ASSERT_TRUE(convnext);
  EXPECT_EQ(convnext->keys, (Keys{{"depths", "2,1"}, {"widths", "8,16"}}));

  const auto unet = identified({{"inc.double_conv.0.weight", {8, 3, 3, 3}},
                                {"inc.double_conv.1.weight", {8}},
                                {"down1.maxpool_conv.1.double_conv.0.weight", {16, 8, 3, 3}},
                                {"up1.up.weight", {16, 8, 2, 2}},
                                {"outc.conv.weight", {4, 8, 1, 1}}});
  ASSERT_TRUE(unet);
  EXPECT_EQ(unet->keys, (Keys{{"width", "8"}, {"depth", "1"}, {"up", "transposed"}, {"norm", "group"}}));
  EXPECT_EQ(unet->classes, 4);

  EXPECT_FALSE(identified({{"hidden0.weight", {8, 8}}}));
}

}  // namespace recognition_test
}  // namespace lockstep::testing
