// SPDX-License-Identifier: BSD-3-Clause
// U-Net with a residual network as its encoder, for masks and fields. Parameters are named as in
// segmentation_models_pytorch: those of the encoder as in torchvision, so that its public weights can be used.
#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>

#include <torch/types.h>

#include <cmath>

#include "models/families/inverted_residual.hpp"
#include "models/families/resnet.hpp"
#include "models/families/rows.hpp"
#include "models/layers/initial_values.hpp"
#include "models/layers/sequence.hpp"

// N samples, C channels, H x W pixels. Levels are the outputs of the encoder, with half the pixels of each other.
namespace lockstep::models {

namespace {

constexpr std::int64_t kMinUnetResNetSize = 32;  // which the encoder divides to one pixel

class ResNetEncoder : public Block {
 public:
  explicit ResNetEncoder(const ResNetOptions& options) : body_(*this, options) { body_.initialize(); }

  /// {[N, C, H, W]} -> five levels
  Tensors forward_tensors(const Tensors& inputs) override {
    Tensors levels;
    body_.forward(inputs.front(), &levels);
    return levels;
  }

  const ResNetBody& body() const noexcept { return body_; }

 private:
  ResNetBody body_;
};

std::shared_ptr<ConvNorm> decoder_unit(std::int64_t in, std::int64_t out) {
  return std::make_shared<ConvNorm>(in, out, ConvNormOptions{.kernel = 3, .activation = UnitActivation::relu});
}

/// Enlarges its input, appends the level of the encoder, and applies two convolutions.
class DecoderBlock : public Block {
 public:
  /// @param skipped  channels of the level of the encoder; 0 = it only gives the size
  DecoderBlock(std::int64_t in, std::int64_t skipped, std::int64_t out) : has_skip_(skipped > 0) {
    conv1_ = register_module("conv1", decoder_unit(in + skipped, out));
    conv2_ = register_module("conv2", decoder_unit(out, out));
  }

  /// {[N, in, H / 2, W / 2], [N, skipped, H, W]} -> {[N, out, H, W]}
  Tensors forward_tensors(const Tensors& inputs) override {
    const at::Tensor& skip = inputs[1];
    at::Tensor x = at::upsample_nearest2d(inputs[0], {skip.size(2), skip.size(3)});
    if (has_skip_) x = at::cat({x, skip}, 1);
    return {run(*conv2_, run(*conv1_, x))};
  }

 private:
  bool has_skip_;
  std::shared_ptr<ConvNorm> conv1_;
  std::shared_ptr<ConvNorm> conv2_;
};

/// The blocks of the decoder, from the smallest level to the image.
class DecoderBlocks : public Block {
 public:
  /// @param levels  channels of the levels of the encoder
  /// @param widths  output channels of each block
  DecoderBlocks(const std::vector<std::int64_t>& levels, const std::vector<std::int64_t>& widths) {
    std::int64_t in = levels.back();
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::int64_t skipped = i + 1 < levels.size() ? levels[levels.size() - 2 - i] : 0;
      blocks_.push_back(register_module(std::to_string(i), std::make_shared<DecoderBlock>(in, skipped, widths[i])));
      in = widths[i];
    }
  }

  /// The image, then the levels of the encoder -> {[N, out, H, W]}
  Tensors forward_tensors(const Tensors& inputs) override {
    at::Tensor x = inputs.back();
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      x = run(*blocks_[i], Tensors{x, inputs[inputs.size() - 2 - i]}).front();
    }
    return {x};
  }

 private:
  std::vector<std::shared_ptr<DecoderBlock>> blocks_;
};

class UnetDecoder : public Block {
 public:
  UnetDecoder(const std::vector<std::int64_t>& levels, const std::vector<std::int64_t>& widths) {
    blocks_ = register_module("blocks", std::make_shared<DecoderBlocks>(levels, widths));
  }

  Tensors forward_tensors(const Tensors& inputs) override { return run(*blocks_, inputs); }

 private:
  std::shared_ptr<DecoderBlocks> blocks_;
};

class UnetResNet : public Model {
 public:
  UnetResNet(const ResNetOptions& options, const std::vector<std::int64_t>& widths, std::int64_t outputs) {
    encoder_ = register_module("encoder", std::make_shared<ResNetEncoder>(options));
    decoder_ = register_module("decoder", std::make_shared<UnetDecoder>(encoder_->body().channels(), widths));
    head_ = register_module("segmentation_head", std::make_shared<BlockSequence>());
    head_->add("0", std::make_shared<Conv2d>(widths.back(), outputs, 3));
    initialize();
  }

  /// [N, C, H, W] -> [N, outputs, H, W]
  at::Tensor forward(const at::Tensor& input) override {
    Tensors levels = run(*encoder_, Tensors{input});
    levels.insert(levels.begin(), input);
    return run(*head_, run(*decoder_, levels).front());
  }

 private:
  /// The decoder: convolutions uniform in +-sqrt(6 / inputs). The head: uniform in +-sqrt(6 / (inputs + outputs)).
  void initialize() {
    const torch::NoGradGuard no_grad;
    const auto fill = [](const Block& block, bool counts_outputs) {
      for (at::Tensor& parameter : block.parameters()) {
        if (parameter.dim() == 4) {
          const std::int64_t pixels = parameter.size(2) * parameter.size(3);
          const std::int64_t fans = (parameter.size(1) + (counts_outputs ? parameter.size(0) : 0)) * pixels;
          const double bound = std::sqrt(6.0 / static_cast<double>(fans));
          draw_uniform(parameter, -bound, bound);
          parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
        } else if (counts_outputs) {
          parameter.zero_();  // bias of the head
        }
      }
    };
    fill(*decoder_, false);
    fill(*head_, true);
  }

  std::shared_ptr<ResNetEncoder> encoder_;
  std::shared_ptr<UnetDecoder> decoder_;
  std::shared_ptr<BlockSequence> head_;
};

}  // namespace

std::shared_ptr<Model> make_unet_resnet(const Section& model, const Task& task) {
  const std::string& name = model.text("name");
  require_images(name, task, 3);
  require_head(model, task);
  require_fields(name, task);
  const ResNetOptions options = resnet_options(model, task.sample_shape[0]);
  if (!options.has_pooling) {
    throw ConfigError(model.cite("stem") + ": the encoder of " + name + " has the stem imagenet; reset the key");
  }
  const std::vector<std::int64_t> widths = model.integers("decoder_widths");
  if (widths.size() != 5) {
    throw ConfigError(model.cite("decoder_widths") + ": " + name + " has 5 levels, but there are " +
                      std::to_string(widths.size()) + " widths; give one for each level");
  }
  require_pixels(name, task, kMinUnetResNetSize);
  return std::make_shared<UnetResNet>(options, widths, task.classes);
}

}  // namespace lockstep::models
