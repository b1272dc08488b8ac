// SPDX-License-Identifier: BSD-3-Clause

#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>

#include "models/layers/initial_values.hpp"
#include "reference/models_families.hpp"

namespace lockstep::testing::reference {

// The positions come behind the patches.
std::vector<StateEntry> torchvision_vit_state(const std::vector<StateEntry>& ours) {
  std::vector<StateEntry> entries;
  StateEntry positions;
  const std::vector<families::NameRow>& names = torchvision_names("vit");
  for (const StateEntry& entry : ours) {
    const StateEntry mapped{families::to_public_name(names, entry.name)->name, entry.shape, entry.name};
    if (entry.name == "pos_embed") {
      positions = mapped;
      continue;
    }
    entries.push_back(mapped);
    if (entry.name == "patch_embed.proj.bias") entries.push_back(positions);
  }
  return entries;
}

namespace models_vit_test {

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

GoldenModel torchvision_model(const Json& one_case) {
  const Json options = options_of(one_case);
  const double ratio = options.at("mlp_dim").get<double>() / options.at("hidden_dim").get<double>();
  return {.keys = {{"name", "vit"},
                   {"patch_size", text_of(options.at("patch_size"))},
                   {"depth", text_of(options.at("num_layers"))},
                   {"num_heads", text_of(options.at("num_heads"))},
                   {"embed_dim", text_of(options.at("hidden_dim"))},
                   {"mlp_ratio", std::to_string(ratio)}},
          .task = task_of(one_case),
          .public_state = torchvision_vit_state};
}

TEST(ReferenceVit, PositionsForOtherGrids) {
  if (!std::filesystem::exists(golden("models/vit.json"))) GTEST_SKIP() << "no reference data for models";
  const Json document = load("models/vit.json");
  const std::string salt = document.at("salt");
  for (const Json& entry : document.at("position_embedding_resize")) {
    const std::vector<std::int64_t> before = entry.at("old");
    const std::vector<std::int64_t> after = entry.at("new");
    const at::Tensor positions =
        by_formula(salt + entry.at("name").get<std::string>(), entry.at("shape")).to(at::kFloat);
    const at::Tensor resized =
        models::resize_positions(positions, entry.at("prefix_tokens"), {before[0], before[1]}, {after[0], after[1]});
    const Json& stored = entry.at("result");
    ASSERT_EQ(resized.sizes().vec(), stored.at("shape").get<std::vector<std::int64_t>>());
    const at::Tensor values = resized.contiguous().view(-1);
    const auto expect_part = [&](std::int64_t begin, const std::vector<double>& expected) {
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(values[begin + static_cast<std::int64_t>(i)].item<double>(), expected[i], 2e-6);
      }
    };
    if (stored.contains("data")) {
      expect_part(0, stored.at("data"));
    } else {
      expect_part(0, stored.at("first"));
      expect_part(values.numel() - std::ssize(stored.at("last")), stored.at("last"));
      EXPECT_NEAR(values.norm().item<double>(), stored.at("norm").get<double>(), 1e-4);
    }
  }
}

TEST(ReferenceVit, DropPathRates) {
  if (!std::filesystem::exists(golden("models/vit.json"))) GTEST_SKIP() << "no reference data for models";
  for (const Json& entry : load("models/vit.json").at("drop_path")) {
    expect_close(models::drop_path_rates(entry.at("rate"), entry.at("depth")), entry.at("rates"), {.absolute = 1e-7},
                 "rates");  // which are float32 there
  }
}

}  // namespace models_vit_test

GoldenModel vit_model(const Json& one_case) {
  const std::string name = one_case.at("name");
  const std::string what = one_case.at("what");
  if (what.starts_with("torchvision")) return models_vit_test::torchvision_model(one_case);
  if (what.find("create_model") != std::string::npos) return {.keys = {{"name", name}}, .task = task_of(one_case)};
  Json options = options_of(one_case);
  if (what.find("rest as above") != std::string::npos) {
    const Json first = options_of(load("models/vit.json").at("cases").at("token"));
    for (const auto& [key, value] : first.items()) {
      if (!options.contains(key)) options[key] = value;
    }
  }
  GoldenModel model{.keys = {{"name", "vit"}}, .task = task_of(one_case)};
  for (const auto& [key, value] : options.items()) {
    if (key != "img_size" && key != "num_classes") model.keys[key] = models_vit_test::text_of(value);
  }
  return model;
}

}  // namespace lockstep::testing::reference
