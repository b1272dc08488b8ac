// SPDX-License-Identifier: BSD-3-Clause
// MobileNetV2, MobileNetV3 and EfficientNet-B0. Parameters are named as in torchvision.
// Sources: Sandler et al., "MobileNetV2: Inverted residuals and linear bottlenecks", 2018, table 2; Howard et al.,
// "Searching for MobileNetV3", 2019, tables 1 and 2; Tan and Le, "EfficientNet: Rethinking model scaling for
// convolutional neural networks", 2019, table 1.
#include <lockstep/core/error.hpp>
#include <lockstep/models/model.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>

#include "models/families/inverted_residual.hpp"
#include "models/families/rows.hpp"
#include "models/layers/channels_last.hpp"
#include "models/layers/initial_values.hpp"
#include "models/layers/sequence.hpp"

// N samples, C channels, H x W pixels.
namespace lockstep::models {

namespace {

struct FeatureNetParts {
  std::shared_ptr<BlockSequence> features = std::make_shared<BlockSequence>();  ///< the first layer, "0", is a ConvNorm
  std::shared_ptr<BlockSequence> classifier = std::make_shared<BlockSequence>();  ///< takes the means of the channels
  void (*initialize_linear)(at::Tensor& weight);                                  ///< weights of the classifier
};

/// Convolutions ("features"), the mean over the pixels, linear layers ("classifier"): the form of torchvision's
/// networks for mobile devices. Convolutions start from N(0, 2 / (out * kernel^2)), biases with zero.
class FeatureNet : public Model {
 public:
  explicit FeatureNet(const FeatureNetParts& parts);

  at::Tensor forward(const at::Tensor& input) override;  ///< [N, C, H, W] -> [N, classes]

 private:
  std::shared_ptr<BlockSequence> features_;
  std::shared_ptr<BlockSequence> classifier_;
};

/// @throws ConfigError  the images have fewer pixels than the strides of the network divide to one
void require_feature_net_images(const std::string& name, const Task& task) {
  constexpr std::int64_t kMinSize = 32;  // five strides of 2
  require_images(name, task, 3);
  require_pixels(name, task, kMinSize);
}

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

/// Equal blocks; the first one has the stride.
struct EfficientStage {
  std::int64_t factor;  ///< channels of the depthwise convolution per input channel
  std::int64_t kernel;
  std::int64_t stride;
  std::int64_t out;
  std::int64_t count;
};

constexpr EfficientStage kEfficientNetB0[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                                              {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};

std::int64_t efficientnet_blocks() {
  std::int64_t count = 0;
  for (const EfficientStage& stage : kEfficientNetB0) count += stage.count;
  return count;
}

/// Uniform in +-1/sqrt(out).
void uniform_by_outputs(at::Tensor& weight) {
  const double bound = 1 / std::sqrt(static_cast<double>(weight.size(0)));
  draw_uniform(weight, -bound, bound);
}

std::shared_ptr<ConvNorm> efficientnet_unit(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                            std::int64_t stride) {
  return std::make_shared<ConvNorm>(
      in, out, ConvNormOptions{.kernel = kernel, .stride = stride, .activation = UnitActivation::silu});
}

std::shared_ptr<InvertedResidual> efficientnet_block(const EfficientStage& stage, std::int64_t in, std::int64_t out,
                                                     std::int64_t stride, double drop_path) {
  const std::int64_t expanded = scaled_channels(in, static_cast<double>(stage.factor));
  return std::make_shared<InvertedResidual>(
      InvertedResidualOptions{.in = in,
                              .expanded = expanded,
                              .out = out,
                              .kernel = stage.kernel,
                              .stride = stride,
                              .activation = UnitActivation::silu,
                              .excitation = std::make_shared<SqueezeExcitation>(
                                  expanded, std::max<std::int64_t>(1, in / 4), UnitActivation::silu, /*is_hard=*/false),
                              .drop_path = drop_path});
}

}  // namespace

FeatureNet::FeatureNet(const FeatureNetParts& parts) {
  features_ = register_module("features", parts.features);
  classifier_ = register_module("classifier", parts.classifier);
  const torch::NoGradGuard no_grad;
  for (const auto& item : named_parameters()) {
    at::Tensor parameter = item.value();
    if (parameter.dim() == 4) {
      const std::int64_t fan_out = parameter.size(0) * parameter.size(2) * parameter.size(3);
      draw_normal(parameter, 0, std::sqrt(2.0 / static_cast<double>(fan_out)));
      parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
    } else if (parameter.dim() == 2) {
      parts.initialize_linear(parameter);
    } else if (item.key().ends_with("bias")) {
      parameter.zero_();
    }
  }
}

at::Tensor FeatureNet::forward(const at::Tensor& input) {
  // Convolutions and norms take less time on CPU with the channels innermost.
  const at::Tensor features = run(*features_, channels_last(input));
  return run(*classifier_, features.mean({2, 3}));
}

std::shared_ptr<Model> make_mobilenet(const Section& model, const Task& task) {
  const std::string& name = model.text("name");
  require_feature_net_images(name, task);
  if (name == "mobilenet_v2") return std::make_shared<FeatureNet>(mobilenet_v2(model, task));
  const bool is_small = name == "mobilenet_v3_small";
  return std::make_shared<FeatureNet>(is_small ? mobilenet_v3(model, task, kMobileNetV3Small, 1024)
                                               : mobilenet_v3(model, task, kMobileNetV3Large, 1280));
}

std::shared_ptr<Model> make_efficientnet(const Section& model, const Task& task) {
  require_feature_net_images(model.text("name"), task);
  const double factor = model.real("width_mult");
  FeatureNetParts parts{.initialize_linear = uniform_by_outputs};
  std::int64_t in = scaled_channels(32, factor);
  parts.features->add("0", efficientnet_unit(task.sample_shape[0], in, 3, 2));
  // Block i of n is skipped with a probability of drop_path * i / n as in torchvision.
  const double step = model.real("drop_path") / static_cast<double>(efficientnet_blocks());
  std::int64_t block = 0;
  int number = 1;
  for (const EfficientStage& stage : kEfficientNetB0) {
    const std::int64_t out = scaled_channels(stage.out, factor);
    const auto blocks = std::make_shared<BlockSequence>();
    for (std::int64_t i = 0; i < stage.count; ++i, ++block, in = out) {
      blocks->add(std::to_string(i),
                  efficientnet_block(stage, in, out, i == 0 ? stage.stride : 1, step * static_cast<double>(block)));
    }
    parts.features->add(std::to_string(number++), blocks);
  }
  parts.features->add(std::to_string(number), efficientnet_unit(in, 4 * in, 1, 1));
  parts.classifier->add("0", std::make_shared<Dropout>(model.real("head_dropout")));
  parts.classifier->add("1", std::make_shared<Linear>(4 * in, task.classes));
  return std::make_shared<FeatureNet>(parts);
}

}  // namespace lockstep::models
