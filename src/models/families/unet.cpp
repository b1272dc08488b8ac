// SPDX-License-Identifier: BSD-3-Clause
// U-Net: images to masks of classes, or fields over 1 to 3 axes to fields. Convolutions are padded, so that the output
// is as large as the input. Parameters have the names of the most used public implementation for PyTorch.
// Source: Ronneberger et al., "U-Net: Convolutional networks for biomedical image segmentation", 2015, figure 1.
#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "models/families/inverted_residual.hpp"
#include "models/families/resnet.hpp"
#include "models/families/rows.hpp"
#include "models/layers/channels_last.hpp"
#include "models/layers/initial_values.hpp"
#include "models/layers/sequence.hpp"
#include "models/layers/space_layers.hpp"

// N samples, C channels, H x W pixels; space: the sizes of 1 to 3 axes.
namespace lockstep::models {

namespace {

constexpr std::int64_t kMaxUnetDepth = 48;
constexpr std::int64_t kUnetNormGroups = 8;  // groups of each GroupNorm

struct UnetOptions {
  std::int64_t width;                 ///< channels of the first level; each further level has twice as many
  std::int64_t depth;                 ///< number of levels below the first
  bool is_interpolated;               ///< enlarges by interpolation instead of transposed convolutions
  std::string norm;                   ///< batch, group or none
  std::vector<AxisPadding> paddings;  ///< one for each axis of space

  std::size_t axes() const noexcept { return paddings.size(); }
};

/// Twice: convolution of size 3, normalization, ReLU.
class ConvolutionPair : public Block {
 public:
  /// @param inner  channels between the two convolutions
  ConvolutionPair(std::int64_t in, std::int64_t inner, std::int64_t out, const UnetOptions& options) {
    add("0", "1", in, inner, options);
    add("3", "4", inner, out, options);
  }

  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = input;
    for (const Unit& unit : units_) x = unit.conv.norm_relu(x, unit.norm.get());
    return x;
  }

 private:
  struct Unit {
    PaddedConvolution conv;
    std::shared_ptr<Block> norm;  // or null
  };

  void add(const char* conv_name, const char* norm_name, std::int64_t in, std::int64_t out,
           const UnetOptions& options) {
    const std::string& norm = options.norm;
    Unit unit;
    unit.conv = PaddedConvolution(options.paddings, in, out, /*has_bias=*/norm == "none");
    register_module(conv_name, unit.conv.layer());
    if (norm == "batch") unit.norm = register_module(norm_name, std::make_shared<BatchNorm>(out));
    if (norm == "group") unit.norm = register_module(norm_name, std::make_shared<GroupNorm>(kUnetNormGroups, out));
    units_.push_back(std::move(unit));
  }

  std::vector<Unit> units_;
};

std::shared_ptr<BlockSequence> double_convolution(std::int64_t in, std::int64_t inner, std::int64_t out,
                                                  const UnetOptions& options) {
  const auto level = std::make_shared<BlockSequence>();
  level->add("double_conv", std::make_shared<ConvolutionPair>(in, inner, out, options));
  return level;
}

class Halve : public Block {
 public:
  at::Tensor forward(const at::Tensor& input) override { return halved(input); }
};

std::shared_ptr<BlockSequence> unet_down(std::int64_t in, std::int64_t out, const UnetOptions& options) {
  const auto layers = std::make_shared<BlockSequence>();
  layers->add("0", std::make_shared<Halve>());
  layers->add("1", double_convolution(in, out, out, options));
  const auto level = std::make_shared<BlockSequence>();
  level->add("maxpool_conv", layers);
  return level;
}

/// Enlarges the output of the level below and appends it to that of the level above on the way down.
class UnetUp : public Block {
 public:
  /// @param in  channels of both together
  UnetUp(std::int64_t in, std::int64_t out, const UnetOptions& options) {
    if (!options.is_interpolated) {
      up_ =
          register_module("up", space_convolution(options.axes(), in, in / 2, 2, {.stride = 2, .is_transposed = true}));
    }
    conv_ = register_module("conv", double_convolution(in, options.is_interpolated ? in / 2 : out, out, options));
  }

  /// {[N, C', space / 2], [N, C, space]} -> {[N, out, space]}
  Tensors forward_tensors(const Tensors& inputs) override {
    const at::Tensor& skip = inputs[1];
    const at::Tensor enlarged = up_ ? run(*up_, inputs[0]) : doubled(inputs[0]);
    return {run(*conv_, at::cat({skip, padded_like(enlarged, skip)}, 1))};
  }

 private:
  std::shared_ptr<Block> up_;  // or null
  std::shared_ptr<BlockSequence> conv_;
};

class Unet : public Model {
 public:
  Unet(const UnetOptions& options, std::int64_t channels, std::int64_t outputs) : is_of_images_(options.axes() == 2) {
    const std::int64_t width = options.width;
    const std::int64_t divisor =
        options.is_interpolated ? 2 : 1;  // interpolation keeps the channels, so each level has fewer
    in_ = register_module("inc", double_convolution(channels, width, width, options));
    for (std::int64_t i = 1; i <= options.depth; ++i) {
      const std::int64_t out = (width << i) / (i == options.depth ? divisor : 1);
      downs_.push_back(register_module("down" + std::to_string(i), unet_down(width << (i - 1), out, options)));
    }
    for (std::int64_t i = 1; i <= options.depth; ++i) {
      const std::int64_t in = width << (options.depth + 1 - i);
      const std::int64_t out = i == options.depth ? width : in / 2 / divisor;
      ups_.push_back(register_module("up" + std::to_string(i), std::make_shared<UnetUp>(in, out, options)));
    }
    out_ = register_module("outc", std::make_shared<BlockSequence>());
    out_->add("conv", space_convolution(options.axes(), width, outputs, 1));
    for (at::Tensor& parameter : parameters()) {
      if (is_of_images_ && parameter.dim() == 4) parameter.set_data(with_channels_last(parameter));
    }
  }

  /// [N, C, space...] -> [N, outputs, space...]
  at::Tensor forward(const at::Tensor& input) override {
    // Convolutions and norms of images take less time on CPU with the channels innermost.
    Tensors levels = {run(*in_, is_of_images_ ? channels_last(input) : input)};
    for (const auto& down : downs_) levels.push_back(run(*down, levels.back()));
    at::Tensor x = levels.back();
    for (std::size_t i = 0; i < ups_.size(); ++i) x = run(*ups_[i], Tensors{x, levels[levels.size() - 2 - i]}).front();
    return run(*out_, x);
  }

 private:
  bool is_of_images_;
  std::shared_ptr<BlockSequence> in_;
  std::vector<std::shared_ptr<BlockSequence>> downs_;
  std::vector<std::shared_ptr<UnetUp>> ups_;
  std::shared_ptr<BlockSequence> out_;
};

UnetOptions unet_options(const Section& model, const Task& task) {
  return {.width = model.integer("width"),
          .depth = model.integer("depth"),
          .is_interpolated = model.text("up") != "transposed",
          .norm = model.text("norm"),
          .paddings = axis_paddings(model, task.sample_shape.size() - 1)};
}

[[noreturn]] void refuse_size(const Section& model, const UnetOptions& options, const Task& task,
                              std::int64_t smallest) {
  const std::string side = std::to_string(smallest);
  const bool are_images = options.axes() == 2 && std::ranges::count(options.paddings, AxisPadding::reflect) == 0;
  const std::string needed = are_images ? "images of at least " + side + " x " + side + " pixels"
                                        : "fields of at least " + side + " points on an axis";
  throw ConfigError(model.cite("depth") + ": " + std::to_string(options.depth) + " levels need " + needed +
                    ", but they have " + sizes_text(task));
}

void check_unet(const Section& model, const UnetOptions& options, const Task& task) {
  require_fields(model.text("name"), task);
  if (options.norm != "none" && options.norm != "batch" && options.norm != "group") {
    throw ConfigError(model.cite("norm") + ": for unet, choose one of: batch, group, none");
  }
  if (options.norm == "group" && options.width % kUnetNormGroups != 0) {
    throw ConfigError(model.cite("width") + ": with model.norm=group, the width must be a multiple of " +
                      std::to_string(kUnetNormGroups));
  }
  if (options.depth > kMaxUnetDepth) {
    throw ConfigError(model.cite("depth") + ": unet has at most " + std::to_string(kMaxUnetDepth) + " levels");
  }
  for (std::size_t axis = 0; axis < options.axes(); ++axis) {
    // A reflecting border needs the second point of an axis.
    const bool is_reflected = options.paddings[axis] == AxisPadding::reflect;
    const std::int64_t smallest = std::int64_t{is_reflected ? 2 : 1} << options.depth;
    if (task.sample_shape[axis + 1] < smallest) refuse_size(model, options, task, smallest);
  }
}

// U-Net with a residual network as its encoder, for masks and fields. Parameters are named as in
// segmentation_models_pytorch: those of the encoder as in torchvision, so that its public weights can be used.

// Levels are the outputs of the encoder, with half the pixels of each other.

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

std::shared_ptr<Model> make_unet(const Section& model, const Task& task) {
  require_space("unet", task);
  require_head(model, task);
  const UnetOptions options = unet_options(model, task);
  check_unet(model, options, task);
  return std::make_shared<Unet>(options, task.sample_shape[0], output_channels(task));
}

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
