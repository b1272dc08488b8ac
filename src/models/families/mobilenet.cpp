// SPDX-License-Identifier: BSD-3-Clause
// MobileNetV2 and MobileNetV3. Parameters are named as in torchvision.
// Sources: Sandler et al., "MobileNetV2: Inverted residuals and linear bottlenecks", 2018, table 2; Howard et al.,
// "Searching for MobileNetV3", 2019, tables 1 and 2.
#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <span>

#include "models/families/feature_net.hpp"
#include "models/families/inverted_residual.hpp"
#include "models/families/rows.hpp"
#include "models/layers/initial_values.hpp"

namespace lockstep::models {

namespace {

/// Equal blocks of MobileNetV2; the first one has the stride.
struct MobileStage {
  std::int64_t factor;  ///< channels of the depthwise convolution per input channel
  std::int64_t out;
  std::int64_t count;
  std::int64_t stride;
};

constexpr MobileStage kMobileNetV2[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                        {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};

/// A block of MobileNetV3.
struct MobileBlock {
  std::int64_t kernel;
  std::int64_t expanded;
  std::int64_t out;
  bool has_excitation;
  bool has_hardswish;  ///< instead of ReLU
  std::int64_t stride;
};

constexpr MobileBlock kMobileNetV3Large[] = {
    {3, 16, 16, false, false, 1}, {3, 64, 24, false, false, 2}, {3, 72, 24, false, false, 1},
    {5, 72, 40, true, false, 2},  {5, 120, 40, true, false, 1}, {5, 120, 40, true, false, 1},
    {3, 240, 80, false, true, 2}, {3, 200, 80, false, true, 1}, {3, 184, 80, false, true, 1},
    {3, 184, 80, false, true, 1}, {3, 480, 112, true, true, 1}, {3, 672, 112, true, true, 1},
    {5, 672, 160, true, true, 2}, {5, 960, 160, true, true, 1}, {5, 960, 160, true, true, 1}};

constexpr MobileBlock kMobileNetV3Small[] = {
    {3, 16, 16, true, false, 2}, {3, 72, 24, false, false, 2}, {3, 88, 24, false, false, 1},
    {5, 96, 40, true, true, 2},  {5, 240, 40, true, true, 1},  {5, 240, 40, true, true, 1},
    {5, 120, 48, true, true, 1}, {5, 144, 48, true, true, 1},  {5, 288, 96, true, true, 2},
    {5, 576, 96, true, true, 1}, {5, 576, 96, true, true, 1}};

void small_normal(at::Tensor& weight) { draw_normal(weight, 0, 0.01); }

/// Appends a layer under the next number.
void add_feature(FeatureNetParts& parts, const std::shared_ptr<Block>& layer) {
  parts.features->add(std::to_string(parts.features->children().size()), layer);
}

FeatureNetParts mobilenet_v2(const Section& model, const Task& task) {
  const double factor = model.real("width_mult");
  const auto unit = [](std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
    return std::make_shared<ConvNorm>(
        in, out, ConvNormOptions{.kernel = kernel, .stride = stride, .activation = UnitActivation::relu6});
  };
  FeatureNetParts parts{.initialize_linear = small_normal};
  std::int64_t in = scaled_channels(32, factor);
  add_feature(parts, unit(task.sample_shape[0], in, 3, 2));
  for (const MobileStage& stage : kMobileNetV2) {
    const std::int64_t out = scaled_channels(stage.out, factor);
    for (std::int64_t i = 0; i < stage.count; ++i, in = out) {
      add_feature(parts, std::make_shared<InvertedResidual>(InvertedResidualOptions{.in = in,
                                                                                    .expanded = in * stage.factor,
                                                                                    .out = out,
                                                                                    .kernel = 3,
                                                                                    .stride = i == 0 ? stage.stride : 1,
                                                                                    .activation = UnitActivation::relu6,
                                                                                    .layers_name = "conv",
                                                                                    .has_plain_projection = true}));
    }
  }
  const std::int64_t features = scaled_channels(1280, std::max(1.0, factor));
  add_feature(parts, unit(in, features, 1, 1));
  parts.classifier->add("0", std::make_shared<Dropout>(model.real("head_dropout")));
  parts.classifier->add("1", std::make_shared<Linear>(features, task.classes));
  return parts;
}

class Hardswish : public Block {
 public:
  at::Tensor forward(const at::Tensor& input) override { return at::hardswish(input); }
};

FeatureNetParts mobilenet_v3(const Section& model, const Task& task, std::span<const MobileBlock> blocks,
                             std::int64_t hidden) {
  static constexpr BatchNormOptions kNorm = {.eps = 1e-3, .momentum = 0.01};
  const double factor = model.real("width_mult");
  const auto unit = [](std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
    return std::make_shared<ConvNorm>(
        in, out,
        ConvNormOptions{.kernel = kernel, .stride = stride, .activation = UnitActivation::hardswish, .norm = kNorm});
  };
  FeatureNetParts parts{.initialize_linear = small_normal};
  std::int64_t in = scaled_channels(16, factor);
  add_feature(parts, unit(task.sample_shape[0], in, 3, 2));
  for (const MobileBlock& block : blocks) {
    const std::int64_t expanded = scaled_channels(block.expanded, factor);
    const std::int64_t out = scaled_channels(block.out, factor);
    InvertedResidualOptions options{
        .in = in,
        .expanded = expanded,
        .out = out,
        .kernel = block.kernel,
        .stride = block.stride,
        .activation = block.has_hardswish ? UnitActivation::hardswish : UnitActivation::relu,
        .norm = kNorm};
    if (block.has_excitation) {
      options.excitation = std::make_shared<SqueezeExcitation>(expanded, scaled_channels(expanded / 4, 1),
                                                               UnitActivation::relu, /*is_hard=*/true);
    }
    add_feature(parts, std::make_shared<InvertedResidual>(options));
    in = out;
  }
  add_feature(parts, unit(in, 6 * in, 1, 1));
  const std::int64_t wide = scaled_channels(hidden, factor);
  parts.classifier->add("0", std::make_shared<Linear>(6 * in, wide));
  parts.classifier->add("1", std::make_shared<Hardswish>());
  parts.classifier->add("2", std::make_shared<Dropout>(model.real("head_dropout")));
  parts.classifier->add("3", std::make_shared<Linear>(wide, task.classes));
  return parts;
}

}  // namespace

std::shared_ptr<Model> make_mobilenet(const Section& model, const Task& task) {
  const std::string& name = model.text("name");
  require_feature_net_images(name, task);
  if (name == "mobilenet_v2") return std::make_shared<FeatureNet>(mobilenet_v2(model, task));
  const bool is_small = name == "mobilenet_v3_small";
  return std::make_shared<FeatureNet>(is_small ? mobilenet_v3(model, task, kMobileNetV3Small, 1024)
                                               : mobilenet_v3(model, task, kMobileNetV3Large, 1280));
}

}  // namespace lockstep::models
