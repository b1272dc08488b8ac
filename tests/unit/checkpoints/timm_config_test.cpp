// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/interop/timm_config.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

namespace lockstep::testing {
namespace timm_config_test {

using namespace checkpoints;
using Lines = std::vector<std::string>;

std::string error_of(const std::string& text) {
  try {
    parse_timm_config(text, "folder/config.json");
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
                                                        "normalize,mean=0.5,0.25,0.125,std=0.5,1,2"}));
}

TEST(TimmConfigTest, EarlyVersionsHaveOneLevelAndDefaults) {
  const TimmConfig config = parse_timm_config(R"({"architecture": "resnet50", "labels": {"0": "cat", "2": "dog"},
                                                  "num_classes": 3, "crop_mode": "squash"})",
                                              "config.json");
  EXPECT_EQ(config.label_names, (Lines{"cat", "1", "dog"}));
  EXPECT_EQ(evaluation_lines(config.images, ""),
            (Lines{"resize,size=256,filter=bicubic,mode=squash", "center_crop,size=224",
                   "normalize,mean=0.485,0.456,0.406,std=0.229,0.224,0.225"}));
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
      {R"({"architecture": "resnet50", "num_classes": -1})", "num_classes = -1 is not an integer from 0"},
      {R"({"architecture": "resnet50", "num_classes": 1e99})", "num_classes = 1e+99 is not an integer"},
      {R"({"architecture": "resnet50", "num_classes": 18446744073709551615})", "is not an integer from 0"},
      {R"({"architecture": "resnet50", "num_classes": 2, "label_names": ["a"]})", "label_names has 1 entries"},
      {R"({"architecture": "resnet50", "num_classes": 2, "label_names": [1, 2]})", "label_names is not a list"},
      {R"({"architecture": "resnet50", "num_classes": 2, "label_names": {"2": "a"}})", "label_names is not a list"},
      {R"({"architecture": "resnet50", "num_classes": 2, "label_names": "a"})", "label_names is not a list"},
      {R"({"architecture": "resnet50", "model_args": []})", "model_args = [] is not an object"},
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

}  // namespace timm_config_test
}  // namespace lockstep::testing
