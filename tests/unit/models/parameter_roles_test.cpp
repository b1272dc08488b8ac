// SPDX-License-Identifier: BSD-3-Clause
#include "models/script/parameter_roles.hpp"

#include <lockstep/models/layers.hpp>

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

#include <map>

namespace lockstep::models {
namespace parameter_roles_test {

namespace nn = torch::nn;

/// The place where a deformable convolution looks is computed by a layer inside it.
class Deformable : public Block {
 public:
  Deformable() {
    weight = register_parameter("weight", torch::zeros({4, 4}));
    register_module("offset", std::make_shared<Conv2d>(2, 18, 3));
  }
  at::Tensor forward(const at::Tensor& input) override { return input; }
  LayerKind kind() const override { return LayerKind::deformable; }
  at::Tensor weight;
};

/// Layers of every kind, under names that hold no number.
class Zoo : public Model {
 public:
  Zoo() {
    register_parameter("scale", torch::zeros({}));
    register_module("ours", std::make_shared<LayerNorm>(4));
    register_module("batch", std::make_shared<BatchNorm>(4));
    register_module("gray", std::make_shared<Conv2d>(1, 4, 3));
    register_module("plain", std::make_shared<Conv2d>(2, 4, 3));
    register_module("deep", nn::Conv2d(nn::Conv2dOptions(4, 8, 3).groups(4)));
    register_module("grouped", nn::Conv2d(nn::Conv2dOptions(4, 8, 3).groups(2)));
    register_module("line", nn::Conv1d(nn::Conv1dOptions(4, 4, 3).groups(4)));
    register_module("up", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 4, 3).groups(4)));
    register_module("theirs", nn::Sequential(nn::BatchNorm1d(4), nn::BatchNorm2d(4), nn::BatchNorm3d(4),
                                             nn::LayerNorm(nn::LayerNormOptions({4})), nn::GroupNorm(2, 4),
                                             nn::InstanceNorm2d(nn::InstanceNorm2dOptions(4).affine(true))));
    register_module("bent", std::make_shared<Deformable>());
    const auto tied = register_module("tied", std::make_shared<Linear>(2, 2, false));
    register_module("again", tied);
  }
  at::Tensor forward(const at::Tensor& input) override { return input; }
};

std::map<std::string, ParameterRole> roles_of(const Model& model) {
  std::map<std::string, ParameterRole> roles;
  for (const ParameterRole& role : parameter_roles(model)) roles[role.name] = role;
  return roles;
}

TEST(ParameterRolesTest, KindsAreThoseOfTheLayers) {
  const auto roles = roles_of(Zoo());
  for (const char* name : {"ours.weight", "ours.bias", "batch.weight", "theirs.0.weight", "theirs.1.bias",
                           "theirs.2.weight", "theirs.3.bias", "theirs.4.weight", "theirs.5.weight"}) {
    EXPECT_EQ(roles.at(name).kind, LayerKind::norm) << name;
  }
  for (const char* name : {"gray.weight", "gray.bias", "deep.weight"}) {
    EXPECT_EQ(roles.at(name).kind, LayerKind::depthwise) << name;
  }
  for (const char* name : {"scale", "plain.weight", "grouped.weight", "line.weight", "up.weight", "tied.weight"}) {
    EXPECT_EQ(roles.at(name).kind, LayerKind::other) << name;
  }
  EXPECT_TRUE(roles.at("bent.offset.weight").is_offset && roles.at("bent.offset.bias").is_offset);
  EXPECT_FALSE(roles.at("bent.weight").is_offset || roles.at("plain.weight").is_offset);
}

TEST(ParameterRolesTest, ATensorIsNewOnce) {
  const auto roles = roles_of(Zoo());
  EXPECT_EQ(roles.at("tied.weight").same_as, "");
  EXPECT_EQ(roles.at("again.weight").same_as, "tied.weight");
}

std::map<std::string, std::int64_t> layers_after(const char* name, const Task& task) {
  Section options = Section::with_defaults("model", model_keys());
  options.set("name", name, "test");
  std::map<std::string, std::int64_t> layers;
  for (const ParameterRole& role : parameter_roles(*build(options, task, 1, at::kFloat))) {
    layers[role.name] = role.layers_after;
  }
  return layers;
}

// Four blocks by default.
TEST(ParameterRolesTest, BlocksAreCountedFromTheOutput) {
  const auto gpt = layers_after("gpt", Task{.sample_shape = {8}, .classes = 16, .is_text = true});
  EXPECT_EQ(gpt.at("tokens.weight"), 5);
  EXPECT_EQ(gpt.at("positions.weight"), 5);
  EXPECT_EQ(gpt.at("block0.norm1.weight"), 4);
  EXPECT_EQ(gpt.at("block3.feed_forward.out.weight"), 1);
  EXPECT_EQ(gpt.at("norm.weight"), 0);
  const auto mlp = layers_after("mlp", Task{.sample_shape = {1, 4, 4}, .classes = 10});
  EXPECT_EQ(mlp.at("hidden0.weight"), 1);
  EXPECT_EQ(mlp.at("head.bias"), 0);
}

TEST(ParameterRolesTest, AModelMayNameItsLayers) {
  const auto resnet = layers_after("resnet18", Task{.sample_shape = {3, 8, 8}, .classes = 10});
  EXPECT_EQ(resnet.at("conv1.weight"), 5);
  EXPECT_EQ(resnet.at("bn1.bias"), 5);
  EXPECT_EQ(resnet.at("layer1.0.conv1.weight"), 4);
  EXPECT_EQ(resnet.at("layer4.1.bn2.weight"), 1);
  EXPECT_EQ(resnet.at("fc.weight"), 0);
}

std::vector<std::string> undecayed_of(const std::map<std::string, std::string>& settings, const Task& task) {
  Section options = Section::with_defaults("model", model_keys());
  for (const auto& [key, value] : settings) options.set(key, value, "test");
  std::vector<std::string> names;
  for (const ParameterRole& role : parameter_roles(*build(options, task, 1, at::kFloat))) {
    if (role.is_undecayed) names.push_back(role.name);
  }
  return names;
}

// Those of no_weight_decay() of timm, and the register tokens.
TEST(ParameterRolesTest, TokensAndPositionsOfAVisionTransformerAreNotDecayed) {
  using Names = std::vector<std::string>;
  const Task images{.sample_shape = {3, 32, 32}, .classes = 10};
  const std::map<std::string, std::string> vit = {
      {"name", "vit"}, {"patch_size", "8"}, {"embed_dim", "8"}, {"depth", "1"}, {"num_heads", "2"}};
  EXPECT_EQ(undecayed_of(vit, images), (Names{"cls_token", "pos_embed"}));
  auto with_registers = vit;
  with_registers["reg_tokens"] = "2";
  EXPECT_EQ(undecayed_of(with_registers, images), (Names{"cls_token", "reg_token", "pos_embed"}));
  EXPECT_EQ(undecayed_of({{"name", "resnet18"}, {"width", "1"}}, images), Names{});
  EXPECT_EQ(undecayed_of({{"name", "gpt"}}, Task{.sample_shape = {8}, .classes = 16, .is_text = true}), Names{});
}

}  // namespace parameter_roles_test
}  // namespace lockstep::models
