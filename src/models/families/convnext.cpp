// SPDX-License-Identifier: BSD-3-Clause
// ConvNeXt. Parameters are named as in timm.
// Source: Liu et al., "A ConvNet for the 2020s", 2022, figure 4 and table 9.
#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>

#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "models/families/rows.hpp"
#include "models/layers/channels_last.hpp"
#include "models/layers/initial_values.hpp"
#include "models/layers/sequence.hpp"

// N samples, C channels, H x W pixels.
namespace lockstep::models {

namespace {

constexpr double kConvNextEps = 1e-6;
constexpr double kConvNextDeviation = 0.02;  // standard deviation of initial weights
constexpr double kConvNextScale = 1e-6;      // initial factor of the residual branches
constexpr std::int64_t kConvNextPatch = 4;   // pixels that the stem merges, in both directions

struct ConvNextOptions {
  std::vector<std::int64_t> depths;  ///< blocks of each stage
  std::vector<std::int64_t> widths;  ///< channels of each stage
  double drop_path;                  ///< probability in the last block; grows linearly from 0 in the first
};

std::shared_ptr<Conv2d> patch_convolution(std::int64_t in, std::int64_t out, std::int64_t size) {
  return std::make_shared<Conv2d>(in, out, size, Conv2dOptions{.stride = size, .padding = 0});
}

/// x + drop_path(gamma * mlp(norm(conv_dw(x))))
class ConvNextBlock : public Block {
 public:
  ConvNextBlock(std::int64_t width, double drop_path) {
    gamma_ = register_parameter("gamma", torch::full({width}, kConvNextScale));
    conv_ = register_module("conv_dw", std::make_shared<Conv2d>(width, width, 7, Conv2dOptions{.groups = width}));
    norm_ = register_module("norm", std::make_shared<LayerNorm>(width, /*has_bias=*/true, kConvNextEps));
    mlp_ = register_module("mlp", std::make_shared<GeluMlp>(width, 4 * width));
    drop_path_ = register_module("drop_path", std::make_shared<DropPath>(drop_path));
  }

  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor pixels = run(*norm_, run(*conv_, input).permute({0, 2, 3, 1}));
    if (!is_training() && !is_tapped()) {
      return mlp_->forward_sum(pixels, input.permute({0, 2, 3, 1}), gamma_).permute({0, 3, 1, 2});
    }
    const at::Tensor branch = run(*mlp_, pixels) * gamma_;
    return input + run(*drop_path_, branch.permute({0, 3, 1, 2}));
  }

 private:
  at::Tensor gamma_;  // [width]
  std::shared_ptr<Conv2d> conv_;
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<GeluMlp> mlp_;
  std::shared_ptr<DropPath> drop_path_;
};

/// Mean over the pixels, normalization, linear layer.
class ConvNextHead : public Block {
 public:
  ConvNextHead(std::int64_t width, std::int64_t classes) {
    norm_ = register_module("norm", std::make_shared<LayerNorm>(width, /*has_bias=*/true, kConvNextEps));
    linear_ = register_module("fc", std::make_shared<Linear>(width, classes));
  }

  at::Tensor forward(const at::Tensor& input) override { return run(*linear_, run(*norm_, input.mean({2, 3}))); }

 private:
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<Linear> linear_;
};

std::shared_ptr<BlockSequence> convnext_stem(std::int64_t channels, std::int64_t width) {
  const auto stem = std::make_shared<BlockSequence>();
  stem->add("0", patch_convolution(channels, width, kConvNextPatch));
  stem->add("1", std::make_shared<ChannelNorm>(width, kConvNextEps));
  return stem;
}

/// Halves height and width.
std::shared_ptr<BlockSequence> convnext_downsample(std::int64_t in, std::int64_t out) {
  const auto layers = std::make_shared<BlockSequence>();
  layers->add("0", std::make_shared<ChannelNorm>(in, kConvNextEps));
  layers->add("1", patch_convolution(in, out, 2));
  return layers;
}

std::shared_ptr<BlockSequence> convnext_stages(const ConvNextOptions& options) {
  const std::int64_t count = std::reduce(options.depths.begin(), options.depths.end());
  const double step = options.drop_path / static_cast<double>(std::max<std::int64_t>(count - 1, 1));
  const auto stages = std::make_shared<BlockSequence>();
  std::int64_t block = 0;
  for (std::size_t s = 0; s < options.depths.size(); ++s) {
    const auto stage = std::make_shared<BlockSequence>();
    if (s > 0) stage->add("downsample", convnext_downsample(options.widths[s - 1], options.widths[s]));
    const auto blocks = std::make_shared<BlockSequence>();
    for (std::int64_t i = 0; i < options.depths[s]; ++i, ++block) {
      const double drop_path = step * static_cast<double>(block);
      blocks->add(std::to_string(i), std::make_shared<ConvNextBlock>(options.widths[s], drop_path));
    }
    stage->add("blocks", blocks);
    stages->add(std::to_string(s), stage);
  }
  return stages;
}

class ConvNext : public Model {
 public:
  ConvNext(const ConvNextOptions& options, std::int64_t channels, std::int64_t classes) {
    stem_ = register_module("stem", convnext_stem(channels, options.widths.front()));
    stages_ = register_module("stages", convnext_stages(options));
    head_ = register_module("head", std::make_shared<ConvNextHead>(options.widths.back(), classes));
    initialize();
  }

  /// [N, C, H, W] -> [N, classes]
  at::Tensor forward(const at::Tensor& input) override {
    // The norms and linear layers of a block need no copies with the channels innermost.
    return run(*head_, run(*stages_, run(*stem_, channels_last(input))));
  }

 private:
  void initialize() {
    const torch::NoGradGuard no_grad;
    for (const auto& item : named_parameters()) {
      at::Tensor parameter = item.value();
      if (parameter.dim() > 1) draw_normal(parameter, 0.0, kConvNextDeviation);
      if (item.key().ends_with("bias")) parameter.zero_();
      if (parameter.dim() == 4) parameter.set_data(with_channels_last(parameter));
    }
  }

  std::shared_ptr<BlockSequence> stem_;
  std::shared_ptr<BlockSequence> stages_;
  std::shared_ptr<ConvNextHead> head_;
};

ConvNextOptions convnext_options(const Section& model) {
  const ConvNextOptions options{
      .depths = model.integers("depths"), .widths = model.integers("widths"), .drop_path = model.real("drop_path")};
  if (options.depths.size() != options.widths.size()) {
    throw ConfigError(model.cite("depths") + ": there are " + std::to_string(options.depths.size()) +
                      " stages, but model.widths has " + std::to_string(options.widths.size()) +
                      "; give each stage a depth and a width");
  }
  return options;
}

}  // namespace

std::shared_ptr<Model> make_convnext(const Section& model, const Task& task) {
  const std::string& name = model.text("name");
  require_images(name, task, 3);
  const ConvNextOptions options = convnext_options(model);
  require_pixels(name, task, kConvNextPatch << (options.depths.size() - 1));
  return std::make_shared<ConvNext>(options, task.sample_shape[0], task.classes);
}

}  // namespace lockstep::models
