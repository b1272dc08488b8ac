// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/interop/name_map.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::testing {
namespace name_map_test {

using namespace checkpoints;
using Pairs = std::vector<std::pair<std::string, std::string>>;

void expect_pairs(const char* model, const Pairs& pairs) {
  const NameMap* const map = find_name_map("torchvision", model);
  ASSERT_NE(map, nullptr);
  for (const auto& [ours, theirs] : pairs) {
    ASSERT_TRUE(to_public_name(*map, ours)) << ours;
    ASSERT_TRUE(to_own_name(*map, theirs)) << theirs;
    EXPECT_EQ(to_public_name(*map, ours)->name, theirs);
    EXPECT_EQ(to_own_name(*map, theirs)->name, ours);
  }
}

TEST(NameMapTest, NamesOfTorchvision) {
  expect_pairs("vit_tiny_patch16_224",
               {{"cls_token", "class_token"},
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
  expect_pairs("unet_resnet18", {{"encoder.conv1.weight", "conv1.weight"},
                                 {"encoder.bn1.running_var", "bn1.running_var"},
                                 {"encoder.layer4.1.bn2.bias", "layer4.1.bn2.bias"},
                                 {"encoder.layer2.0.downsample.1.weight", "layer2.0.downsample.1.weight"}});
}

TEST(NameMapTest, OldNamesOfTorchvisionAreRead) {
  const NameMap& map = *find_name_map("torchvision", "vit");
  EXPECT_EQ(to_own_name(map, "encoder.layers.encoder_layer_4.mlp.linear_2.bias")->name, "blocks.4.mlp.fc2.bias");
}

TEST(NameMapTest, ScalesOfChannelsHaveAnotherShape) {
  const NameMap& map = *find_name_map("torchvision", "convnext_tiny");
  const auto ours = to_own_name(map, "features.5.8.layer_scale");
  ASSERT_TRUE(ours);
  EXPECT_EQ(ours->name, "stages.2.blocks.8.gamma");
  EXPECT_EQ(to_own_shape(ours->operation, {7, 1, 1}), (std::vector<std::int64_t>{7}));
  EXPECT_EQ(to_public_shape(ours->operation, {7}), (std::vector<std::int64_t>{7, 1, 1}));
  EXPECT_EQ(to_own_shape(ours->operation, {7, 2, 1}), (std::vector<std::int64_t>{7, 2, 1}));
  EXPECT_EQ(to_public_shape(NameOperation::same, {7}), (std::vector<std::int64_t>{7}));
}

TEST(NameMapTest, OtherNamesDoNotMatch) {
  const NameMap& vit = *find_name_map("torchvision", "vit");
  const NameMap& convnext = *find_name_map("torchvision", "convnext");
  for (const char* name : {"", "cls_token2", "encoder.layers.encoder_layer_.ln_1.weight", "heads.head.",
                           "encoder.layers.encoder_layer_01.ln_1.weight", "encoder.layers.encoder_layer_-1.ln_1.weight",
                           "encoder.layers.encoder_layer_99999999999999999999.ln_1.weight"}) {
    EXPECT_FALSE(to_own_name(vit, name)) << name;
  }
  EXPECT_FALSE(to_own_name(convnext, "features.2.0.block.0.weight"));  // even: no stage
  EXPECT_FALSE(to_own_name(convnext, "features.1.0.block.1.weight"));
  EXPECT_FALSE(to_public_name(convnext, "head.weight"));
  EXPECT_FALSE(to_own_name(*find_name_map("torchvision", "unet_resnet50"), "fc.weight"));
  EXPECT_EQ(find_name_map("torchvision", "resnet50"), nullptr);
  EXPECT_EQ(find_name_map("timm", "vit"), nullptr);
  EXPECT_EQ(find_name_map("torchvision", "vitamin"), nullptr);
}

}  // namespace name_map_test
}  // namespace lockstep::testing
