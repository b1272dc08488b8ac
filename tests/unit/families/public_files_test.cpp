// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>

#include "families/public_model.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {
namespace families_files_test {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using namespace checkpoints;
using namespace families;

Array floats_of(std::vector<std::int64_t> shape, const std::vector<float>& values) {
  const auto kept = std::make_shared<std::vector<float>>(values);
  return {.dtype = DType::float32, .shape = std::move(shape), .bytes = std::as_bytes(std::span(*kept)), .owner = kept};
}

PublicWeights some_weights() {
  return {
      .model = {.library = "timm",
                .function = "resnet18",
                .arguments = {{"depths", "[1, 2]"}, {"qkv_bias", "true"}, {"global_pool", "\"avg\""}},
                .head = "fc",
                .stem = "conv1",
                .channels = 3,
                .height = 32,
                .width = 48,
                .classes = 2},
      .arrays = {{"fc.weight", floats_of({2, 1}, {1, 2})}},
      .class_names = {"cat", "dog"},
      .input = {.mean = {0.25, 0.5, 0.75}, .deviation = {1, 1, 2}, .interpolation = "bicubic", .crop_fraction = 0.875}};
}

TEST(PublicFilesTest, FolderOfTimm) {
  const TemporaryFolder directory;
  const std::string path = directory / "model";
  write_timm_folder(path, some_weights());
  const Json config = Json::parse(read_file(path + "/config.json"));
  EXPECT_EQ(config.at("architecture"), "resnet18");
  EXPECT_EQ(config.at("num_classes"), 2);
  EXPECT_EQ(config.at("label_names"), Json({"cat", "dog"}));
  EXPECT_EQ(config.at("model_args"),
            Json::parse(R"({"in_chans": 3, "depths": [1, 2], "qkv_bias": true, "global_pool": "avg"})"));
  const Json& pretrained = config.at("pretrained_cfg");
  EXPECT_EQ(pretrained.at("input_size"), Json({3, 32, 48}));
  EXPECT_EQ(pretrained.at("mean"), Json({0.25, 0.5, 0.75}));
  EXPECT_EQ(pretrained.at("std"), Json({1.0, 1.0, 2.0}));
  EXPECT_EQ(pretrained.at("crop_pct"), 0.875);
  EXPECT_EQ(pretrained.at("interpolation"), "bicubic");
  EXPECT_EQ(pretrained.at("first_conv"), "conv1");
  EXPECT_EQ(pretrained.at("classifier"), "fc");
  EXPECT_EQ(pretrained.at("custom_load"), false);
  const Archive archive = read_foreign(path + "/model.safetensors");
  EXPECT_EQ(archive.array_paths(), (std::vector<std::string>{"/fc.weight"}));
  EXPECT_EQ(std::distance(fs::directory_iterator(path), fs::directory_iterator()), 2);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), fs::directory_iterator()), 1);
  try {
    write_timm_folder(path, some_weights());
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.fault(), CheckpointFault::refused);
  }
}

TEST(PublicFilesTest, AFailureLeavesNothing) {
  const TemporaryFolder directory;
  PublicWeights weights = some_weights();
  weights.arrays.push_back(weights.arrays.front());  // array of the same name
  EXPECT_THROW(write_timm_folder(directory / "model", weights), CheckpointError);
  EXPECT_TRUE(fs::is_empty(directory.path()));
}

TEST(PublicFilesTest, MetadataOfTorchvision) {
  const TemporaryFolder directory;
  PublicWeights weights = some_weights();
  weights.model.library = "torchvision";
  weights.model.arguments = {{"groups", "2"}};
  for (const auto& [file, kind] :
       {std::pair("w.pth", ExportKind::pytorch), std::pair("w.safetensors", ExportKind::safetensors)}) {
    write_state_dict(directory / file, kind, weights);
    const Archive archive = read_foreign(directory / file);
    EXPECT_EQ(archive.text("/", "architecture"), "torchvision.models.resnet18(groups=2, num_classes=2)");
    EXPECT_EQ(archive.text("/", "class_names"), R"(["cat","dog"])");
    EXPECT_EQ(archive.array_paths(), (std::vector<std::string>{"/fc.weight"}));
  }
}

}  // namespace families_files_test
}  // namespace lockstep::testing
