// SPDX-License-Identifier: BSD-3-Clause
// ResNet-18. For small images, the stem is a 3x3 convolution without pooling. Parameters are named as in torchvision.
// Source: He et al., "Deep residual learning for image recognition", 2015, table 1 and section 4.2.
#include <lockstep/models/layers.hpp>

#include <torch/types.h>

#include <cmath>

#include "models/rows.hpp"

namespace lockstep::models {

namespace {

constexpr std::int64_t kImagenetStem = 7;  // width of its kernel

std::shared_ptr<Conv2d> convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
  return std::make_shared<Conv2d>(in, out, kernel, Conv2dOptions{.stride = stride, .has_bias = false});
}

/// relu(norm(input) + residual), without a residual when it is undefined. A tap sees the normalization alone.
at::Tensor run_with_relu(BatchNorm& norm, const at::Tensor& input, const at::Tensor& residual = {}) {
  if (!is_tapped()) return norm.forward_relu(input, residual);
  const at::Tensor output = run(norm, input);
  return (residual.defined() ? output.add_(residual) : output).relu_();
}

/// Projects the input of a residual unit to the shape of its output.
class Shortcut : public Block {
 public:
  Shortcut(std::int64_t in, std::int64_t out, std::int64_t stride) {
    conv_ = register_module("0", convolution(in, out, 1, stride));
    norm_ = register_module("1", std::make_shared<BatchNorm>(out));
  }

  at::Tensor forward(const at::Tensor& input) override { return run(*norm_, run(*conv_, input)); }

 private:
  std::shared_ptr<Conv2d> conv_;
  std::shared_ptr<BatchNorm> norm_;
};

/// Two 3x3 convolutions around which the input is added to the output.
class BasicUnit : public Block {
 public:
  BasicUnit(std::int64_t in, std::int64_t out, std::int64_t stride) {
    conv1_ = register_module("conv1", convolution(in, out, 3, stride));
    norm1_ = register_module("bn1", std::make_shared<BatchNorm>(out));
    conv2_ = register_module("conv2", convolution(out, out, 3, 1));
    norm2_ = register_module("bn2", std::make_shared<BatchNorm>(out));
    if (stride != 1 || in != out) {
      shortcut_ = register_module("downsample", std::make_shared<Shortcut>(in, out, stride));
    }
  }

  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor inner = run_with_relu(*norm1_, run(*conv1_, input));
    return run_with_relu(*norm2_, run(*conv2_, inner), shortcut_ ? run(*shortcut_, input) : input);
  }

 private:
  std::shared_ptr<Conv2d> conv1_;
  std::shared_ptr<BatchNorm> norm1_;
  std::shared_ptr<Conv2d> conv2_;
  std::shared_ptr<BatchNorm> norm2_;
  std::shared_ptr<Shortcut> shortcut_;
};

class Stage : public Block {
 public:
  Stage(std::int64_t in, std::int64_t out, std::int64_t stride) {
    first_ = register_module("0", std::make_shared<BasicUnit>(in, out, stride));
    second_ = register_module("1", std::make_shared<BasicUnit>(out, out, 1));
  }

  at::Tensor forward(const at::Tensor& input) override { return run(*second_, run(*first_, input)); }

 private:
  std::shared_ptr<BasicUnit> first_;
  std::shared_ptr<BasicUnit> second_;
};

class ResNet18 : public Model {
 public:
  /// @param width       channels of the stem and of the first stage
  /// @param has_pooling  stem of ImageNet
  ResNet18(std::int64_t channels, std::int64_t width, std::int64_t classes, bool has_pooling)
      : has_pooling_(has_pooling) {
    stem_ = register_module(
        "conv1", has_pooling ? convolution(channels, width, kImagenetStem, 2) : convolution(channels, width, 3, 1));
    norm_ = register_module("bn1", std::make_shared<BatchNorm>(width));
    std::int64_t in = width;
    for (int s = 0; s < 4; ++s) {
      const std::int64_t out = width << s;
      const auto stage = std::make_shared<Stage>(in, out, s == 0 ? 1 : 2);
      stages_.push_back(register_module("layer" + std::to_string(s + 1), stage));
      in = out;
    }
    head_ = register_module("fc", std::make_shared<Linear>(in, classes));
    initialize();
  }

  /// [N, C, H, W] -> [N, classes]
  at::Tensor forward(const at::Tensor& input) override {
    // With the channels innermost, the layers take a tenth less time on CPU. A clone, because images of one channel
    // would count as contiguous in any format.
    at::Tensor x = input.clone(at::MemoryFormat::ChannelsLast);
    x = run_with_relu(*norm_, run(*stem_, x));
    if (has_pooling_) x = at::max_pool2d(x, 3, 2, 1);
    for (const auto& stage : stages_) x = run(*stage, x);
    return run(*head_, x.mean({2, 3}));
  }

  std::vector<std::vector<std::string>> layers() const override {
    return {{"conv1.", "bn1."}, {"layer1."}, {"layer2."}, {"layer3."}, {"layer4."}, {"fc."}};
  }

  Anatomy anatomy() const override { return {.head = "fc", .stem = "conv1"}; }

 private:
  /// Convolutions from N(0, 2 / (out * kernel^2)), which keeps the variance of gradients through ReLUs.
  void initialize() {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters()) {
      if (parameter.dim() != 4) continue;
      const std::int64_t fan_out = parameter.size(0) * parameter.size(2) * parameter.size(3);
      parameter.normal_(0.0, std::sqrt(2.0 / static_cast<double>(fan_out)));
      // Laid out like the images, or every forward and backward would first turn them.
      parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
    }
  }

  bool has_pooling_;
  std::shared_ptr<Conv2d> stem_;
  std::shared_ptr<BatchNorm> norm_;
  std::vector<std::shared_ptr<Stage>> stages_;
  std::shared_ptr<Linear> head_;
};

}  // namespace

std::shared_ptr<Model> make_resnet18(const Section& model, const Task& task) {
  require_images("resnet18", task, 3);
  return std::make_shared<ResNet18>(task.sample_shape[0], model.integer("width"), task.classes,
                                    model.text("stem") == "imagenet");
}

}  // namespace lockstep::models
