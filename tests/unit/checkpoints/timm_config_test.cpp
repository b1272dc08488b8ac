// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/interop/timm_config.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include "checkpoints/interop/model_description.hpp"

namespace lockstep::testing {
namespace timm_config_test {

using namespace checkpoints;
using Lines = std::vector<std::string>;

std::string error_of(const std::string& text, const std::vector<std::string>& models = {"resnet50", "vit_tiny"}) {
  try {
    describe_model(parse_timm_config(text, "folder/config.json"), models);
    return "";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

constexpr const char* kVit = R"({"architecture": "vit_tiny_patch16_224.augreg_in21k", "num_classes": 3,
  "global_pool": "token", "label_names": ["red", "green", "blue"],
  "model_args": {"img_size": [16, 16], "patch_size": 8, "init_values": null, "qkv_bias": false, "drop_rate": 0.0},
  "pretrained_cfg": {"input_size": [3, 16, 16], "crop_pct": 0.8, "interpolation": "bilinear",
                     "mean": [0.5, 0.25, 0.125], "std": [0.5, 1, 2], "num_classes": 7, "license": null}})";

TEST(TimmConfigTest, EntriesOfTheFile) {
  const TimmConfig config = parse_timm_config(kVit, "config.json");
  EXPECT_EQ(config.architecture, "vit_tiny_patch16_224");
  EXPECT_EQ(config.num_classes, 3);  // that of the model, not that of the weights it began with
  EXPECT_EQ(config.label_names, (Lines{"red", "green", "blue"}));
  EXPECT_EQ(evaluation_lines(config.images, ""), (Lines{"resize,size=20,filter=bilinear", "center_crop,size=16",
                                                        "normalise,mean=0.5/0.25/0.125,std=0.5/1/2"}));
  const ModelDescription model = describe_model(config, {"vit_tiny_patch16_224"});
  const std::vector<std::pair<std::string, std::string>> keys = {
      {"global_pool", "token"}, {"init_values", "0"}, {"patch_size", "8"}, {"qkv_bias", "false"}};
  EXPECT_EQ(model.keys, keys);
}

TEST(TimmConfigTest, EarlyVersionsHaveOneLevelAndDefaults) {
  const TimmConfig config = parse_timm_config(R"({"architecture": "resnet50", "labels": {"0": "cat", "2": "dog"},
                                                  "num_classes": 3, "crop_mode": "squash"})",
                                              "config.json");
  EXPECT_EQ(config.label_names, (Lines{"cat", "1", "dog"}));
  EXPECT_EQ(evaluation_lines(config.images, ""),
            (Lines{"resize,size=256,filter=bicubic,mode=squash", "center_crop,size=224",
                   "normalise,mean=0.485/0.456/0.406,std=0.229/0.224/0.225"}));
  const std::vector<std::pair<std::string, std::string>> keys = {{"stem", "imagenet"}};
  EXPECT_EQ(describe_model(config, {"resnet50"}).keys, keys);
}

TEST(TimmConfigTest, MalformedFilesHaveOneSentence) {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"", "it is not JSON in UTF-8"},
      {R"({"architecture": 1e999})", "it contains a number that is too large"},
      {"[]", "it is not a JSON object"},
      {R"({"architecture": "resnet50")", "it is not JSON in UTF-8 at byte"},
      {"{\"architecture\": \"\xff\"}", "it is not JSON in UTF-8"},
      {std::string(100, '[') + std::string(100, ']'), "nested more than 64 levels"},
      {"{}", "no entry 'architecture'"},
      {R"({"model_type": "llama"})", "a model of the library transformers"},
      {R"({"architecture": 5})", "architecture = 5 is not a text"},
      {R"({"architecture": ""})", "architecture = \"\" is not the name of a model"},
      {R"({"architecture": "swin_tiny"})",
       "architecture 'swin_tiny' is not supported; choose one of: resnet50, vit_tiny"},
      {R"({"architecture": "resnet50", "num_classes": -1})", "num_classes = -1 is not an integer from 0"},
      {R"({"architecture": "resnet50", "num_classes": 1e99})", "num_classes = 1e+99 is not an integer"},
      {R"({"architecture": "resnet50", "num_classes": 18446744073709551615})", "is not an integer from 0"},
      {R"({"architecture": "resnet50", "num_classes": 2, "label_names": ["a"]})", "label_names has 1 entries"},
      {R"({"architecture": "resnet50", "num_classes": 2, "label_names": [1, 2]})", "label_names is not a list"},
      {R"({"architecture": "resnet50", "num_classes": 2, "label_names": {"2": "a"}})", "label_names is not a list"},
      {R"({"architecture": "resnet50", "num_classes": 2, "label_names": "a"})", "label_names is not a list"},
      {R"({"architecture": "resnet50", "model_args": []})", "model_args = [] is not an object"},
      {R"({"architecture": "resnet50", "model_args": {"stem_type": "deep"}})", "model_args.stem_type = \"deep\""},
      {R"({"architecture": "resnet50", "model_args": {"drop_rate": 0.5}})", "model_args.drop_rate = 0.5"},
      {R"({"architecture": "resnet50", "pretrained_cfg": 5})", "pretrained_cfg = 5 is not an object"},
      {R"({"architecture": "resnet50", "pretrained_cfg": {"input_size": [3, 224]}})",
       "pretrained_cfg.input_size = [3,224] is not a list of channels, height and width"},
      {R"({"architecture": "resnet50", "pretrained_cfg": {"input_size": [3, 0, 0]}})", "pretrained_cfg.input_size"},
      {R"({"architecture": "resnet50", "pretrained_cfg": {"mean": [0.5]}})", "pretrained_cfg.mean = [0.5]"},
      {R"({"architecture": "resnet50", "pretrained_cfg": {"std": [1, 0, 1]}})", "pretrained_cfg.std = [1,0,1]"},
      {R"({"architecture": "resnet50", "pretrained_cfg": {"crop_pct": 0}})", "pretrained_cfg.crop_pct = 0"},
      {R"({"architecture": "resnet50", "pretrained_cfg": {"crop_pct": "1"}})", "pretrained_cfg.crop_pct = \"1\""},
  };
  for (const auto& [text, part] : rows) {
    const std::string error = error_of(text);
    EXPECT_TRUE(error.starts_with("folder/config.json: ")) << text << "\n" << error;
    EXPECT_NE(error.find(part), std::string::npos) << text << "\n" << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
  EXPECT_EQ(error_of(R"({"architecture": "resnet50"})"), "");
}

TEST(TimmConfigTest, PreparationsThatDoNotExistHereAreRefused) {
  PretrainedImages images;
  images.interpolation = "random";
  EXPECT_THROW(evaluation_lines(images, "config.json"), CheckpointError);
  images = {.crop_mode = "border"};
  EXPECT_THROW(evaluation_lines(images, "config.json"), CheckpointError);
  images = {.height = 224, .width = 256};
  EXPECT_THROW(evaluation_lines(images, "config.json"), CheckpointError);
}

using Keys = std::vector<std::pair<std::string, std::string>>;

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

TEST(ModelDescriptionTest, FamiliesAreKnownByNamesAndShapes) {
  const auto resnet = identify_model(resnet_shapes({2, 2, 2, 2}, false, 3));
  ASSERT_TRUE(resnet);
  EXPECT_EQ(resnet->name, "resnet18");
  EXPECT_EQ(resnet->keys, (Keys{{"stem", "small"}}));
  EXPECT_EQ(resnet->classes, 5);
  const auto resnext = identify_model(resnet_shapes({3, 4, 6, 3}, true, 7));
  ASSERT_TRUE(resnext);
  EXPECT_EQ(resnext->name, "resnet50");
  EXPECT_EQ(resnext->keys, (Keys{{"stem", "imagenet"}, {"groups", "32"}, {"width_per_group", "4"}}));
  EXPECT_FALSE(identify_model(resnet_shapes({3, 4, 6, 4}, true, 7)));

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
  const auto found = identify_model(vit);
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
  EXPECT_EQ(identify_model(vit)->keys.back().second, "false");

  const auto convnext = identify_model({{"stem.0.weight", {8, 3, 4, 4}},
                                        {"stages.0.blocks.0.gamma", {8}},
                                        {"stages.0.blocks.1.gamma", {8}},
                                        {"stages.1.blocks.0.gamma", {16}},
                                        {"head.fc.weight", {3, 16}}});
  ASSERT_TRUE(convnext);
  EXPECT_EQ(convnext->keys, (Keys{{"depths", "2,1"}, {"widths", "8,16"}}));

  const auto unet = identify_model({{"inc.double_conv.0.weight", {8, 3, 3, 3}},
                                    {"inc.double_conv.1.weight", {8}},
                                    {"down1.maxpool_conv.1.double_conv.0.weight", {16, 8, 3, 3}},
                                    {"up1.up.weight", {16, 8, 2, 2}},
                                    {"outc.conv.weight", {4, 8, 1, 1}}});
  ASSERT_TRUE(unet);
  EXPECT_EQ(unet->keys, (Keys{{"width", "8"}, {"depth", "1"}, {"up", "transposed"}, {"norm", "group"}}));
  EXPECT_EQ(unet->classes, 4);

  EXPECT_FALSE(identify_model({{"hidden0.weight", {8, 8}}}));
}

}  // namespace timm_config_test
}  // namespace lockstep::testing
