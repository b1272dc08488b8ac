// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>
#include <lockstep/models/model.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>

#include "reference/models_families.hpp"

namespace lockstep::testing::reference {
namespace models_resnet_test {

TEST(ReferenceResNet, ZeroResiduals) {
  if (!std::filesystem::exists(golden("models/resnet.json"))) GTEST_SKIP() << "no reference data for models";
  Section keys = Section::with_defaults("model", models::model_keys());
  keys.set("name", "resnet50", "test");
  keys.set("zero_init_residual", "true", "test");
  const auto model = models::build(keys, Task{.sample_shape = {3, 32, 32}, .classes = 2}, 1, at::kFloat);
  const auto parameters = model->named_parameters();
  for (const std::string name : load("models/resnet.json").at("zero_init_residual")) {
    ASSERT_TRUE(parameters.contains(name)) << name;
    EXPECT_EQ(parameters[name].abs().sum().item<double>(), 0) << name;
  }
}

}  // namespace models_resnet_test

GoldenModel resnet_model(const Json& one_case) {
  const std::string name = one_case.at("name");
  const bool is_small = name.find("stem32") != std::string::npos;
  return {.keys = {{"name", name.substr(0, name.find("_stem32"))}, {"stem", is_small ? "small" : "imagenet"}},
          .task = task_of(one_case)};
}

}  // namespace lockstep::testing::reference
