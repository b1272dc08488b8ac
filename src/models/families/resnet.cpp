// SPDX-License-Identifier: BSD-3-Clause
// Residual networks of 18 to 152 layers, wide ones and ResNeXt. For small images, the stem is a 3x3 convolution without
// pooling. Parameters are named as in torchvision. Sources: He et al., "Deep residual learning for image recognition",
// 2015, table 1 and section 4.2; Xie et al., "Aggregated residual transformations", 2017; Zagoruyko and Komodakis,
// "Wide residual networks", 2016. As in torchvision, the 3x3 convolution of a bottleneck has the stride.
#include "models/families/resnet.hpp"

#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/text/parse_value.hpp"
#include "models/families/inverted_residual.hpp"
#include "models/families/rows.hpp"
#include "models/layers/channels_last.hpp"
#include "models/layers/constant_weights.hpp"
#include "models/layers/initial_values.hpp"
#include "models/layers/sequence.hpp"

namespace lockstep::models {

namespace {

constexpr std::int64_t kImagenetStem = 7;          // width of its kernel
constexpr std::int64_t kMinImagenetSize = 32;      // which the stem and the stages divide to one pixel
constexpr std::string_view kUnetPrefix = "unet_";  // precedes the name of an encoder

std::shared_ptr<Conv2d> convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                                    std::int64_t groups = 1) {
  return std::make_shared<Conv2d>(in, out, kernel,
                                  Conv2dOptions{.stride = stride, .has_bias = false, .groups = groups});
}

/// A part of a stage: convolutions around which the input is added to the output. Each but the last is followed by a
/// normalization and a ReLU; the last by a normalization, the addition and a ReLU.
class ResidualUnit : public Block {
 public:
  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = input;
    for (std::size_t i = 0; i + 1 < layers_.size(); ++i) {
      x = convolution_norm_relu(*layers_[i].conv, layers_[i].norm.get(), x);
    }
    const Layer& last = layers_.back();
    return convolution_norm_relu(*last.conv, last.norm.get(), x, shortcut_ ? run(*shortcut_, input) : input);
  }

  /// The scale of the last normalization, which is zero where a unit starts as the identity.
  at::Tensor& last_scale() { return layers_.back().norm->weight; }

 protected:
  void add(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride, std::int64_t groups = 1) {
    const std::string number = std::to_string(layers_.size() + 1);
    const auto conv = register_module("conv" + number, convolution(in, out, kernel, stride, groups));
    layers_.push_back({conv, register_module("bn" + number, std::make_shared<BatchNorm>(out))});
  }

  /// Projects the input to the shape of the output if they differ.
  void add_shortcut(std::int64_t in, std::int64_t out, std::int64_t stride) {
    if (stride == 1 && in == out) return;
    shortcut_ = register_module("downsample", std::make_shared<ConvNorm>(in, out, ConvNormOptions{.stride = stride}));
  }

 private:
  struct Layer {
    std::shared_ptr<Conv2d> conv;
    std::shared_ptr<BatchNorm> norm;
  };

  std::vector<Layer> layers_;
  std::shared_ptr<ConvNorm> shortcut_;
};

/// Two 3x3 convolutions.
class BasicUnit : public ResidualUnit {
 public:
  BasicUnit(std::int64_t in, std::int64_t out, std::int64_t stride) {
    add(in, out, 3, stride);
    add(out, out, 3, 1);
    add_shortcut(in, out, stride);
  }
};

/// A 3x3 convolution, perhaps of groups, between two 1x1 convolutions.
class Bottleneck : public ResidualUnit {
 public:
  static constexpr std::int64_t kExpansion = 4;  // output channels for each of the stage's width

  Bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride, const ResNetOptions& options) {
    const std::int64_t inner = width * options.width_per_group / 64 * options.groups;
    const std::int64_t out = kExpansion * width;
    add(in, inner, 1, 1);
    add(inner, inner, 3, stride, options.groups);
    add(inner, out, 1, 1);
    add_shortcut(in, out, stride);
  }
};

/// @param in     channels, which become those of the output
/// @param stage  number from 0
std::shared_ptr<BlockSequence> residual_stage(std::int64_t& in, std::size_t stage, const ResNetOptions& options) {
  const std::int64_t width = options.width << stage;
  const auto units = std::make_shared<BlockSequence>();
  for (std::int64_t i = 0; i < options.units[stage]; ++i) {
    const std::int64_t stride = i == 0 && stage > 0 ? 2 : 1;
    if (options.has_bottlenecks) {
      units->add(std::to_string(i), std::make_shared<Bottleneck>(in, width, stride, options));
      in = Bottleneck::kExpansion * width;
    } else {
      units->add(std::to_string(i), std::make_shared<BasicUnit>(in, width, stride));
      in = width;
    }
  }
  return units;
}

}  // namespace

ResNetBody::ResNetBody(Block& owner, const ResNetOptions& options)
    : has_pooling_(options.has_pooling), has_zero_residuals_(options.has_zero_residuals) {
  const std::int64_t width = options.width;
  stem_ = owner.register_module("conv1", has_pooling_ ? convolution(options.channels, width, kImagenetStem, 2)
                                                      : convolution(options.channels, width, 3, 1));
  norm_ = owner.register_module("bn1", std::make_shared<BatchNorm>(width));
  std::int64_t in = width;
  channels_.push_back(in);
  for (std::size_t s = 0; s < options.units.size(); ++s) {
    const auto stage = residual_stage(in, s, options);
    stages_.push_back(owner.register_module("layer" + std::to_string(s + 1), stage));
    channels_.push_back(in);
  }
}

/// Convolutions from N(0, 2 / (out * kernel^2)), which keeps the variance of gradients through ReLUs.
void ResNetBody::initialize() {
  const torch::NoGradGuard no_grad;
  const auto fill = [](const Block& block) {
    for (at::Tensor& parameter : block.parameters()) {
      if (parameter.dim() != 4) continue;
      const std::int64_t fan_out = parameter.size(0) * parameter.size(2) * parameter.size(3);
      draw_normal(parameter, 0.0, std::sqrt(2.0 / static_cast<double>(fan_out)));
      // Laid out like the images, or every forward and backward would first turn them.
      parameter.set_data(with_channels_last(parameter));
    }
  };
  fill(*stem_);
  for (const auto& stage : stages_) {
    fill(*stage);
    if (!has_zero_residuals_) continue;
    for (const auto& child : stage->children()) dynamic_cast<ResidualUnit&>(*child).last_scale().zero_();
  }
}

at::Tensor ResNetBody::forward(const at::Tensor& input, Tensors* levels) const {
  at::Tensor x = channels_last(input);  // the layers take a tenth less time on CPU
  const auto keep = [&] {
    if (levels != nullptr) levels->push_back(x);
  };
  x = convolution_norm_relu(*stem_, norm_.get(), x);
  keep();
  if (has_pooling_) x = at::max_pool2d(x, 3, 2, 1);
  for (const auto& stage : stages_) {
    x = run(*stage, x);
    keep();
  }
  return x;
}

namespace {

class ResNet : public Model {
 public:
  ResNet(const ResNetOptions& options, std::int64_t classes) : body_(*this, options) {
    head_ = register_module("fc", std::make_shared<Linear>(body_.channels().back(), classes));
    body_.initialize();
  }

  /// [N, C, H, W] -> [N, classes]
  at::Tensor forward(const at::Tensor& input) override { return run(*head_, body_.forward(input).mean({2, 3})); }

 private:
  ResNetBody body_;
  std::shared_ptr<Linear> head_;
};

}  // namespace

ResNetOptions resnet_options(const Section& model, std::int64_t channels) {
  const std::vector<std::int64_t> units = *parse_list(model.text("units"), parse_integer);
  const ResNetOptions options{.units = {units.at(0), units.at(1), units.at(2), units.at(3)},
                              .has_bottlenecks = model.text("unit") == "bottleneck",
                              .groups = model.integer("groups"),
                              .width_per_group = model.integer("width_per_group"),
                              .channels = channels,
                              .width = model.integer("width"),
                              .has_pooling = model.text("stem") == "imagenet",
                              .has_zero_residuals = model.boolean("zero_init_residual")};
  if (!options.has_bottlenecks && (options.groups != 1 || options.width_per_group != 64)) {
    std::string name = model.text("name");
    if (name.starts_with(kUnetPrefix)) name.erase(0, kUnetPrefix.size());  // the encoder
    throw ConfigError(model.cite(options.groups != 1 ? "groups" : "width_per_group") + ": " + name +
                      " has no bottlenecks, so that it has neither groups nor a width of groups; use resnet50 or "
                      "deeper");
  }
  if (options.width * options.width_per_group / 64 == 0) {
    throw ConfigError(model.cite("width_per_group") + ": with model.width = " + std::to_string(options.width) +
                      ", a group has no channels; increase one of them");
  }
  return options;
}

std::shared_ptr<Model> make_resnet(const Section& model, const Task& task) {
  const std::string& name = model.text("name");
  require_images(name, task, 3);
  const ResNetOptions options = resnet_options(model, task.sample_shape[0]);
  const std::int64_t side = std::min(task.sample_shape[1], task.sample_shape[2]);
  if (options.has_pooling && side > 0 && side < kMinImagenetSize) {
    throw ConfigError(model.cite("stem") + ": the stem imagenet of " + name + " needs images of at least " +
                      std::to_string(kMinImagenetSize) + " pixels, but they have " + std::to_string(side) +
                      "; set model.stem=small");
  }
  return std::make_shared<ResNet>(options, task.classes);
}

}  // namespace lockstep::models
