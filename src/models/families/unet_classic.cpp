// SPDX-License-Identifier: BSD-3-Clause
// The U-Net of the benchmarks PDEBench and The Well, over 1 to 3 axes of space: four levels, batch norms and tanh.
// Parameters are named as there.
// Source: Takamoto et al., "PDEBench: An extensive benchmark for scientific machine learning", 2022, appendix.
#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>

#include <torch/types.h>

#include "models/families/rows.hpp"
#include "models/layers/channels_last.hpp"
#include "models/layers/initial_values.hpp"
#include "models/layers/space_layers.hpp"

// N samples, C channels; space: the sizes of 1 to 3 axes.
namespace lockstep::models {

namespace {

constexpr int kClassicLevels = 4;
constexpr std::int64_t kClassicMultiple = 1 << kClassicLevels;

/// Twice: convolution of size 3, batch norm, tanh.
class ClassicPair : public Block {
 public:
  /// @param name  beginning of the names of its layers, such as "enc1"
  ClassicPair(const std::string& name, const std::vector<AxisPadding>& paddings, std::int64_t in, std::int64_t out) {
    add(name, "1", paddings, in, out);
    add(name, "2", paddings, out, out);
  }

  /// [N, in, space...] -> [N, out, space...]
  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = input;
    for (const Unit& unit : units_) x = at::tanh(run(*unit.norm, unit.conv.forward(x)));
    return x;
  }

 private:
  struct Unit {
    PaddedConvolution conv;
    std::shared_ptr<BatchNorm> norm;
  };

  void add(const std::string& name, const std::string& number, const std::vector<AxisPadding>& paddings,
           std::int64_t in, std::int64_t out) {
    Unit unit;
    unit.conv = PaddedConvolution(paddings, in, out, /*has_bias=*/false);
    register_module(name + "conv" + number, unit.conv.layer());
    unit.norm = register_module(name + "norm" + number, std::make_shared<BatchNorm>(out));
    units_.push_back(std::move(unit));
  }

  std::vector<Unit> units_;
};

class UnetClassic : public Model {
 public:
  UnetClassic(const std::vector<AxisPadding>& paddings, std::int64_t width, std::int64_t channels, std::int64_t outputs)
      : is_of_images_(paddings.size() == 2) {
    const auto pair = [&](const std::string& name, const std::string& layers, std::int64_t in, std::int64_t out) {
      return register_module(name, std::make_shared<ClassicPair>(layers, paddings, in, out));
    };
    std::int64_t in = channels;
    for (int level = 1; level <= kClassicLevels; ++level) {
      const std::int64_t out = width << (level - 1);
      encoders_.push_back(pair("encoder" + std::to_string(level), "enc" + std::to_string(level), in, out));
      in = out;
    }
    bottleneck_ = pair("bottleneck", "bottleneck", in, 2 * in);
    for (int level = kClassicLevels; level >= 1; --level) {
      const std::string number = std::to_string(level);
      const std::int64_t out = width << (level - 1);
      ups_.push_back(register_module("upconv" + number, space_convolution(paddings.size(), 2 * out, out, 2,
                                                                          {.stride = 2, .is_transposed = true})));
      decoders_.push_back(pair("decoder" + number, "dec" + number, 2 * out, out));
    }
    // A transposed convolution of one point, so that its weight is [in, out, 1...].
    out_ = register_module("conv", space_convolution(paddings.size(), width, outputs, 1, {.is_transposed = true}));
    for (at::Tensor& parameter : parameters()) {
      if (is_of_images_ && parameter.dim() == 4) parameter.set_data(with_channels_last(parameter));
    }
  }

  /// [N, C, space...] -> [N, outputs, space...]
  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = is_of_images_ ? channels_last(input) : input;
    Tensors levels;
    for (const auto& encoder : encoders_) {
      levels.push_back(run(*encoder, x));
      x = halved(levels.back());
    }
    x = run(*bottleneck_, x);
    for (std::size_t i = 0; i < ups_.size(); ++i) {
      x = run(*decoders_[i], at::cat({run(*ups_[i], x), levels[levels.size() - 1 - i]}, 1));
    }
    return run(*out_, x);
  }

 private:
  bool is_of_images_;
  std::vector<std::shared_ptr<ClassicPair>> encoders_;
  std::shared_ptr<ClassicPair> bottleneck_;
  std::vector<std::shared_ptr<Block>> ups_;  // order of levels: smallest to largest
  std::vector<std::shared_ptr<ClassicPair>> decoders_;
  std::shared_ptr<Block> out_;
};

void require_multiples(const Task& task) {
  for (std::size_t dim = 1; dim < task.sample_shape.size(); ++dim) {
    if (task.sample_shape[dim] > 0 && task.sample_shape[dim] % kClassicMultiple == 0) continue;
    throw ConfigError("model.name: unet_classic needs axes of multiples of " + std::to_string(kClassicMultiple) +
                      " points, but they have " + sizes_text(task) + "; crop the fields or use unet");
  }
}

}  // namespace

std::shared_ptr<Model> make_unet_classic(const Section& model, const Task& task) {
  require_space("unet_classic", task);
  require_head(model, task);
  require_fields("unet_classic", task);
  require_multiples(task);
  const std::vector<AxisPadding> paddings = axis_paddings(model, task.sample_shape.size() - 1);
  // The smallest level has one point on an axis of 16, and reflection needs two.
  for (std::size_t axis = 0; axis < paddings.size(); ++axis) {
    if (paddings[axis] != AxisPadding::reflect || task.sample_shape[axis + 1] > kClassicMultiple) continue;
    throw ConfigError(model.cite("padding") + ": reflect needs at least " + std::to_string(2 * kClassicMultiple) +
                      " points on its axis, but the sizes are " + sizes_text(task));
  }
  return std::make_shared<UnetClassic>(paddings, model.integer("width"), task.sample_shape[0], output_channels(task));
}

}  // namespace lockstep::models
