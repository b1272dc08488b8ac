// SPDX-License-Identifier: BSD-3-Clause
// Names, shapes and counts of public models in full size, without memory for their tensors.
#include <lockstep/core/keys.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>

#include "models/layers/outline.hpp"
#include "reference/models_families.hpp"

namespace lockstep::testing::reference {
namespace models_outline_test {

/// @param name  library and model, such as "timm/vit_tiny_patch16_224"
GoldenModel public_model(const std::string& name, const Json& stored) {
  const std::size_t slash = name.find('/');
  const std::string model = name.substr(slash + 1);
  GoldenModel golden{.keys = {{"name", model}, {"stem", "imagenet"}},
                     .task = {.sample_shape = {3, 224, 224}, .classes = model.ends_with("dinov2") ? 0 : 1000}};
  if (stored.contains("preprocessing")) {
    golden.task.sample_shape = stored.at("preprocessing").at("input_size").get<std::vector<std::int64_t>>();
  }
  if (name.starts_with("torchvision/vit_")) golden.public_state = torchvision_vit_state;
  if (name.starts_with("torchvision/convnext_")) golden.public_state = torchvision_convnext_state;
  return golden;
}

std::shared_ptr<models::Model> outline_of(const GoldenModel& golden) {
  Section keys = Section::with_defaults("model", models::model_keys());
  for (const auto& [key, value] : golden.keys) keys.set(key, value, "test");
  return models::outline(keys, golden.task);
}

void check(const std::string& name, const Json& stored) {
  SCOPED_TRACE(name);
  require_known_fields(stored, {"parameters", "entries", "tied", "sha256", "preprocessing"});
  const GoldenModel golden = public_model(name, stored);
  const auto model = outline_of(golden);
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model->parameters()) {
    EXPECT_TRUE(parameter.is_meta());
    count += parameter.numel();
  }
  for (const at::Tensor& buffer : model->buffers()) EXPECT_TRUE(buffer.is_meta());
  EXPECT_EQ(count, stored.at("parameters").get<std::int64_t>());
  EXPECT_TRUE(stored.at("tied").empty());
  expect_listing(state_lines(*model, golden.public_state),
                 {{"entries", stored.at("entries")}, {"sha256", stored.at("sha256")}});
}

TEST(ReferenceOutlines, PublicModelsInFullSize) {
  const std::string path = "models/state_dicts.json";
  if (!std::filesystem::exists(golden(path))) GTEST_SKIP() << "no reference data for models";
  const Json file = load(path);
  std::size_t checked = 0;
  for (const auto& [name, stored] : file.at("models").items()) {
    if (is_pending(path, name)) continue;
    check(name, stored);
    ++checked;
  }
  EXPECT_GT(checked, 0U);
  for (const auto& [name, stored] : file.at("listings").items()) {
    if (is_pending(path, name)) continue;
    SCOPED_TRACE(name);
    const GoldenModel golden = public_model(name, file.at("models").at(name));
    expect_listing(state_lines(*outline_of(golden), golden.public_state), stored);
  }
}

}  // namespace models_outline_test
}  // namespace lockstep::testing::reference
