// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/interop/torch_optimizer.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <cstring>

#include "foreign_support.hpp"

namespace lockstep::checkpoints {
namespace torch_optimizer_test {

Array floats_of(std::vector<std::int64_t> shape, const std::vector<float>& values) {
  const auto kept = std::make_shared<std::vector<float>>(values);
  return {.dtype = DType::float32, .shape = std::move(shape), .bytes = std::as_bytes(std::span(*kept)), .owner = kept};
}

float only_number(const Array& array) {
  float value = 0;
  std::memcpy(&value, array.bytes.data(), sizeof value);
  return value;
}

TEST(TorchOptimizerTest, EveryValueOfPython) {
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

TEST(TorchOptimizerTest, StateOfAnOptimizer) {
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

}  // namespace torch_optimizer_test
}  // namespace lockstep::checkpoints
