// SPDX-License-Identifier: BSD-3-Clause
#include "families/names.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::testing {
namespace names_test {

using namespace families;
using Pairs = std::vector<std::pair<std::string, std::string>>;

const std::vector<NameRow>& rows_of(const std::string& family) {
  const auto found = std::ranges::find(builtin_families(), family, &FamilyRow::name);
  return find_library(*found, "torchvision")->names;
}

void expect_pairs(const char* family, const Pairs& pairs) {
  const std::vector<NameRow>& rows = rows_of(family);
  for (const auto& [ours, theirs] : pairs) {
    ASSERT_TRUE(to_public_name(rows, ours)) << ours;
    ASSERT_TRUE(to_own_name(rows, theirs)) << theirs;
    EXPECT_EQ(to_public_name(rows, ours)->name, theirs);
    EXPECT_EQ(to_own_name(rows, theirs)->name, ours);
  }
}

TEST(NamesTest, NamesOfTorchvision) {
  expect_pairs("vit", {{"cls_token", "class_token"},
                       {"pos_embed", "encoder.pos_embedding"},
                       {"patch_embed.proj.bias", "conv_proj.bias"},
                       {"blocks.11.attn.qkv.weight", "encoder.layers.encoder_layer_11.self_attention.in_proj_weight"},
                       {"blocks.0.attn.proj.bias", "encoder.layers.encoder_layer_0.self_attention.out_proj.bias"},
                       {"blocks.3.mlp.fc2.weight", "encoder.layers.encoder_layer_3.mlp.3.weight"},
                       {"norm.bias", "encoder.ln.bias"},
                       {"head.weight", "heads.head.weight"}});
  expect_pairs("convnext", {{"stem.0.weight", "features.0.0.weight"},
                            {"stages.0.blocks.2.conv_dw.bias", "features.1.2.block.0.bias"},
                            {"stages.3.blocks.0.mlp.fc2.weight", "features.7.0.block.5.weight"},
                            {"stages.1.downsample.0.weight", "features.2.0.weight"},
                            {"stages.2.downsample.1.weight", "features.4.1.weight"},
                            {"head.fc.weight", "classifier.2.weight"}});
  expect_pairs("unet_resnet", {{"encoder.conv1.weight", "conv1.weight"},
                               {"encoder.bn1.running_var", "bn1.running_var"},
                               {"encoder.layer4.1.bn2.bias", "layer4.1.bn2.bias"},
                               {"encoder.layer2.0.downsample.1.weight", "layer2.0.downsample.1.weight"}});
}

TEST(NamesTest, OldNamesOfTorchvisionAreRead) {
  const std::vector<NameRow>& map = rows_of("vit");
  EXPECT_EQ(to_own_name(map, "encoder.layers.encoder_layer_4.mlp.linear_2.bias")->name, "blocks.4.mlp.fc2.bias");
}

TEST(NamesTest, ScalesOfChannelsHaveAnotherShape) {
  const std::vector<NameRow>& map = rows_of("convnext");
  const auto ours = to_own_name(map, "features.5.8.layer_scale");
  ASSERT_TRUE(ours);
  EXPECT_EQ(ours->name, "stages.2.blocks.8.gamma");
  EXPECT_EQ(to_own_shape(ours->operation, {7, 1, 1}), (std::vector<std::int64_t>{7}));
  EXPECT_EQ(to_public_shape(ours->operation, {7}), (std::vector<std::int64_t>{7, 1, 1}));
  EXPECT_EQ(to_own_shape(ours->operation, {7, 2, 1}), (std::vector<std::int64_t>{7, 2, 1}));
  EXPECT_EQ(to_public_shape(NameOperation::same, {7}), (std::vector<std::int64_t>{7}));
}

TEST(NamesTest, OtherNamesDoNotMatch) {
  const std::vector<NameRow>& vit = rows_of("vit");
  const std::vector<NameRow>& convnext = rows_of("convnext");
  for (const char* name : {"", "cls_token2", "encoder.layers.encoder_layer_.ln_1.weight", "heads.head.",
                           "encoder.layers.encoder_layer_01.ln_1.weight", "encoder.layers.encoder_layer_-1.ln_1.weight",
                           "encoder.layers.encoder_layer_99999999999999999999.ln_1.weight"}) {
    EXPECT_FALSE(to_own_name(vit, name)) << name;
  }
  EXPECT_FALSE(to_own_name(convnext, "features.2.0.block.0.weight"));  // even: no stage
  EXPECT_FALSE(to_own_name(convnext, "features.1.0.block.1.weight"));
  EXPECT_FALSE(to_public_name(convnext, "head.weight"));
  EXPECT_FALSE(to_own_name(rows_of("unet_resnet"), "fc.weight"));
  EXPECT_TRUE(rows_of("resnet").empty());  // the same names
}

// Rows stand for a layer for each number, sorted as numbers; names without a row are in no layer.
TEST(NamesTest, LayersAreSortedByRowsAndNumbers) {
  using Layers = std::vector<std::vector<std::string>>;
  const Layers rows = {{"stem."}, {"stages.{a}.blocks.{b}.", "stages.{a}.downsample."}, {"head."}};
  EXPECT_EQ(
      layers_in(rows, {"head.bias", "stages.1.blocks.10.gamma", "stages.1.blocks.2.gamma", "stages.1.blocks.0.gamma",
                       "stages.1.downsample.0.bias", "stages.0.blocks.0.gamma", "stem.0.bias", "other.bias"}),
      (Layers{{"stem."},
              {"stages.0.blocks.0."},
              {"stages.1.blocks.0.", "stages.1.downsample."},
              {"stages.1.blocks.2."},
              {"stages.1.blocks.10."},
              {"head."}}));
  EXPECT_EQ(layers_in({{"features.0."}, {"features.{a}.{b}.block."}, {"features.{a}."}},
                      {"features.0.0.bias", "features.8.0.bias", "features.1.0.block.0.bias"}),
            (Layers{{"features.0."}, {"features.1.0.block."}, {"features.8."}}));
}

}  // namespace names_test
}  // namespace lockstep::testing
