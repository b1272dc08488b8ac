// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/interop/public_files.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <filesystem>

#include "checkpoints/interop/torch_optimizer.hpp"
#include "foreign_support.hpp"

namespace lockstep::checkpoints {
namespace public_files_test {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Array floats_of(std::vector<std::int64_t> shape, const std::vector<float>& values) {
  const auto kept = std::make_shared<std::vector<float>>(values);
  return {.dtype = DType::float32, .shape = std::move(shape), .bytes = std::as_bytes(std::span(*kept)), .owner = kept};
}

float only_number(const Array& array) {
  float value = 0;
  std::memcpy(&value, array.bytes.data(), sizeof value);
  return value;
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
  const Json config = Json::parse(testing::read_file(path + "/config.json"));
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
    write_torchvision_file(directory / file, kind, weights);
    const Archive archive = read_foreign(directory / file);
    EXPECT_EQ(archive.text("/", "architecture"), "torchvision.models.resnet18(groups=2, num_classes=2)");
    EXPECT_EQ(archive.text("/", "class_names"), R"(["cat","dog"])");
    EXPECT_EQ(archive.array_paths(), (std::vector<std::string>{"/fc.weight"}));
  }
}

TEST(PublicFilesTest, EveryValueOfPython) {
  const TemporaryFolder directory;
  PythonValue::Map map;
  map.items.push_back({"none", PythonValue{std::monostate()}});
  map.items.push_back({"yes", PythonValue{true}});
  map.items.push_back({"negative", PythonValue{std::int64_t{-5}}});
  map.items.push_back({"large", PythonValue{std::int64_t{1} << 40}});
  map.items.push_back({"real", PythonValue{0.1}});
  map.items.push_back({"text", PythonValue{std::string("é")}});
  map.items.push_back({"tensor", PythonValue{floats_of({2}, {1, 2})}});
  map.items.push_back({"empty list", PythonValue{PythonValue::List()}});
  map.items.push_back({"empty map", PythonValue{PythonValue::Map()}});
  PythonValue::List tuple{.items = {{std::int64_t{1}}, {2.5}}, .is_tuple = true};
  map.items.push_back({std::int64_t{7}, PythonValue{std::move(tuple)}});
  write_pytorch_value(directory / "v.pt", {std::move(map)});
  const Archive archive = read_foreign(directory / "v.pt");
  EXPECT_FALSE(archive.has_attribute("/", "none"));
  EXPECT_EQ(archive.integer("/", "yes"), 1);
  EXPECT_EQ(archive.integer("/", "negative"), -5);
  EXPECT_EQ(archive.integer("/", "large"), std::int64_t{1} << 40);
  EXPECT_EQ(archive.real("/", "real"), 0.1);
  EXPECT_EQ(archive.text("/", "text"), "é");
  EXPECT_EQ(archive.array("/tensor").shape, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(archive.integer("/7", "0"), 1);
  EXPECT_EQ(archive.real("/7", "1"), 2.5);
}

TEST(PublicFilesTest, StateOfAnOptimizer) {
  const TemporaryFolder directory;
  const std::map<std::string, double> options = {{"lr", 0.5},    {"beta1", 0.25}, {"beta2", 0.75},        {"eps", 1e-8},
                                                 {"amsgrad", 0}, {"maximize", 0}, {"weight_decay", 0.125}};
  const OptimizerGroup first{
      .options = options,
      .base_lr = 1,
      .parameters = {{"a", 3, {{"exp_avg", floats_of({1}, {4})}, {"exp_avg_sq", floats_of({1}, {5})}}}, {"b", 0, {}}}};
  OptimizerGroup second{.options = options, .base_lr = 1, .parameters = {{"c", 1, {{"exp_avg", floats_of({}, {6})}}}}};
  write_pytorch_value(directory / "o.pt", torch_optimizer("adamw", {first, second}));
  const Archive archive = read_foreign(directory / "o.pt");
  EXPECT_EQ(archive.groups_in("/state"), (std::vector<std::string>{"0", "2"}));  // "b" has had no update
  EXPECT_EQ(only_number(archive.array("/state/0/step")), 3);
  EXPECT_EQ(only_number(archive.array("/state/0/exp_avg_sq")), 5);
  EXPECT_EQ(only_number(archive.array("/state/2/exp_avg")), 6);
  EXPECT_EQ(archive.real("/param_groups/0", "lr"), 0.5);
  EXPECT_EQ(archive.real("/param_groups/0", "initial_lr"), 1);
  EXPECT_EQ(archive.real("/param_groups/1/betas", "1"), 0.75);
  EXPECT_EQ(archive.integer("/param_groups/1", "decoupled_weight_decay"), 1);
  EXPECT_EQ(archive.integer("/param_groups/0/params", "1"), 1);
  EXPECT_EQ(archive.integer("/param_groups/1/params", "0"), 2);
  EXPECT_EQ(archive.text("/param_groups/1/param_names", "0"), "c");
  EXPECT_EQ(torch_optimizer_class("sgd"), "torch.optim.SGD");
  EXPECT_THROW(torch_optimizer("lion", {first}), CheckpointError);
  second.parameters[0].state = {{"other", floats_of({}, {1})}};
  EXPECT_THROW(torch_optimizer("sgd", {second}), CheckpointError);
}

}  // namespace public_files_test
}  // namespace lockstep::checkpoints
