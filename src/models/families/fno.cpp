// SPDX-License-Identifier: BSD-3-Clause
// Fourier neural operator: fields over 1 to 3 axes of space to fields on the same grid. Parameters are named as in
// neuraloperator 2, and the numbers are those of that library.
// Source: Li et al., "Fourier neural operator for parametric partial differential equations", 2021, section 4.
#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/families/rows.hpp"
#include "models/layers/initial_values.hpp"
#include "models/layers/space_layers.hpp"
#include "models/layers/spectra.hpp"

// N samples, C channels; space: the sizes of 1 to 3 axes; K frequencies.
namespace lockstep::models {

namespace {

constexpr std::int64_t kFirstSpaceDim = 2;  // dimensions before it: samples and channels

struct FnoOptions {
  std::int64_t width;               ///< channels of the blocks
  std::int64_t depth;               ///< number of blocks
  std::vector<std::int64_t> modes;  ///< frequencies of each axis, both signs together
  std::int64_t mlp_width;           ///< hidden channels of the channel MLP; 0 = there is none
  std::int64_t lifting_width;       ///< hidden channels of the first layers
  std::int64_t projection_width;    ///< hidden channels of the last layers
  std::string skip;                 ///< path around the spectral convolution
  std::string mlp_skip;             ///< path around the channel MLP
  std::string norm;                 ///< none, one_group or instance
  std::vector<double> padding;      ///< added zeros at both ends of each axis, as a part of its size; empty = none
  bool is_preactivated;             ///< blocks begin with the activation
  bool has_grid;                    ///< appends the relative coordinates of the points

  std::int64_t axes() const noexcept { return std::ssize(modes); }
};

/// Blocks under the names "0", "1", ..., which their owner runs.
class BlockList : public Block {
 public:
  void add(std::size_t number, const std::shared_ptr<Block>& block) { register_module(std::to_string(number), block); }
};

/// [N, C, space...] -> [N, C, points]
at::Tensor points_of(const at::Tensor& field) { return field.flatten(kFirstSpaceDim); }
at::Tensor field_of(const at::Tensor& points, const at::Tensor& like) {
  std::vector<std::int64_t> sizes = like.sizes().vec();
  sizes[1] = points.size(1);
  return points.reshape(sizes);
}

/// The same linear layer for each point.
std::shared_ptr<Block> point_linear(std::int64_t in, std::int64_t out, bool has_bias = true) {
  return space_convolution(1, in, out, 1, {.has_bias = has_bias});
}

/// Two linear layers for each point, with GELU between them.
class PointMlp : public Block {
 public:
  PointMlp(std::int64_t in, std::int64_t hidden, std::int64_t out) {
    const auto layers = register_module("fcs", std::make_shared<BlockList>());
    in_ = point_linear(in, hidden);
    out_ = point_linear(hidden, out);
    layers->add(0, in_);
    layers->add(1, out_);
  }

  at::Tensor forward(const at::Tensor& input) override {
    return field_of(run(*out_, models::gelu(run(*in_, points_of(input)))), input);
  }

 private:
  std::shared_ptr<Block> in_;
  std::shared_ptr<Block> out_;
};

class LinearSkip : public Block {
 public:
  explicit LinearSkip(std::int64_t channels) {
    conv_ = register_module("conv", point_linear(channels, channels, /*has_bias=*/false));
  }

  at::Tensor forward(const at::Tensor& input) override { return field_of(run(*conv_, points_of(input)), input); }

 private:
  std::shared_ptr<Block> conv_;
};

/// A factor for each channel.
class ChannelGate : public Block {
 public:
  ChannelGate(std::int64_t channels, std::int64_t axes) {
    std::vector<std::int64_t> shape(static_cast<std::size_t>(axes + kFirstSpaceDim), 1);
    shape[1] = channels;
    weight_ = register_parameter("weight", torch::ones(shape));
  }

  at::Tensor forward(const at::Tensor& input) override { return input * weight_; }

 private:
  at::Tensor weight_;
};

/// Normalizes each channel of a sample over its points.
class FieldNorm : public Block {
 public:
  at::Tensor forward(const at::Tensor& input) override { return at::group_norm(input, input.size(1), {}, {}, kEps); }
  LayerKind kind() const override { return LayerKind::norm; }

 private:
  static constexpr double kEps = 1e-5;
};

/// The path around a layer of a block, or null for the unchanged field.
std::shared_ptr<Block> fno_skip(const std::string& name, const FnoOptions& options) {
  if (name == "linear") return std::make_shared<LinearSkip>(options.width);
  if (name == "soft-gating") return std::make_shared<ChannelGate>(options.width, options.axes());
  return nullptr;
}

/// Complex numbers, kept as pairs of real ones, so that optimizers, communication and checkpoints see real parameters.
class ComplexWeight : public Block {
 public:
  ComplexWeight(const std::vector<std::int64_t>& shape, double deviation) {
    std::vector<std::int64_t> pairs = shape;
    pairs.push_back(2);
    tensor = register_parameter("tensor", torch::empty(pairs));
    draw_normal(tensor, 0, deviation / std::sqrt(2.0));
  }

  at::Tensor tensor;  ///< [in, out, K of each axis, 2]
};

/// Multiplies the lowest frequencies of a field with a matrix each, and drops the others.
class SpectralConvolution : public Block {
 public:
  explicit SpectralConvolution(const FnoOptions& options) {
    const double deviation = std::sqrt(1.0 / static_cast<double>(options.width));
    std::vector<std::int64_t> bias_shape(static_cast<std::size_t>(options.axes() + 1), 1);
    bias_shape[0] = options.width;
    bias_ = register_parameter("bias", torch::empty(bias_shape));
    draw_normal(bias_, 0, deviation);
    std::vector<std::int64_t> shape = {options.width, options.width};
    shape.insert(shape.end(), options.modes.begin(), options.modes.end());
    shape.back() = shape.back() / 2 + 1;  // a real field has no other frequencies on the last axis
    weight_ = register_module("weight", std::make_shared<ComplexWeight>(shape, deviation));
  }

  at::Tensor forward(const at::Tensor& input) override {
    const bool is_double = input.scalar_type() == at::kDouble;
    const at::Tensor field = is_double ? input : input.to(at::kFloat);  // transforms of 16 bits lose too much
    // The library moves the frequencies of an axis with an odd number of points by one when it writes them.
    return spectral_convolution(field, weight_of(field), FrequencyOrder::shifted) + bias_;
  }

 private:
  /// The matrices of the kept frequencies, as a grid may have fewer than the model: the middle of each axis, and the
  /// beginning of the last one.
  at::Tensor weight_of(const at::Tensor& field) const {
    at::Tensor weight = weight_->tensor.to(field.scalar_type());
    const std::int64_t last = field.dim() - 1;
    for (std::int64_t dim = kFirstSpaceDim; dim <= last; ++dim) {
      const std::int64_t possible = dim == last ? field.size(dim) / 2 + 1 : field.size(dim);
      const std::int64_t dropped = weight.size(dim) - possible;
      if (dropped > 0) weight = weight.narrow(dim, dim == last ? 0 : dropped / 2, possible);
    }
    return weight.contiguous();
  }

  at::Tensor bias_;  // [C, 1...]
  std::shared_ptr<ComplexWeight> weight_;
};

/// The layers of a block, which has no module of its own in the library.
struct FnoLayers {
  std::shared_ptr<SpectralConvolution> spectral;
  std::shared_ptr<Block> skip;      // null = the unchanged field
  std::shared_ptr<Block> mlp;       // or null
  std::shared_ptr<Block> mlp_skip;  // null = the unchanged field
  std::shared_ptr<Block> spectral_norm;
  std::shared_ptr<Block> mlp_norm;
};

class FnoBlocks : public Block {
 public:
  explicit FnoBlocks(const FnoOptions& options)
      : is_preactivated_(options.is_preactivated), layers_(static_cast<std::size_t>(options.depth)) {
    fill("convs", &FnoLayers::spectral, [&] { return std::make_shared<SpectralConvolution>(options); });
    fill("fno_skips", &FnoLayers::skip, [&] { return fno_skip(options.skip, options); });
    if (options.mlp_width > 0) {
      fill("channel_mlp", &FnoLayers::mlp,
           [&] { return std::make_shared<PointMlp>(options.width, options.mlp_width, options.width); });
      fill("channel_mlp_skips", &FnoLayers::mlp_skip, [&] { return fno_skip(options.mlp_skip, options); });
    }
    if (options.norm == "none") return;
    const auto norms = register_module("norm", std::make_shared<BlockList>());
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      norms->add(2 * i, layers_[i].spectral_norm = norm_of(options));
      norms->add(2 * i + 1, layers_[i].mlp_norm = norm_of(options));
    }
  }

  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = input;
    for (std::size_t i = 0; i < layers_.size(); ++i) x = forward_layers(layers_[i], x, i + 1 == layers_.size());
    return x;
  }

 private:
  /// Creates one layer of each block, all of them in a list.
  template <class Layer, class Make>
  void fill(const std::string& name, std::shared_ptr<Layer> FnoLayers::*place, const Make& make) {
    const auto list = register_module(name, std::make_shared<BlockList>());
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      layers_[i].*place = make();
      if (layers_[i].*place != nullptr) list->add(i, layers_[i].*place);
    }
  }

  static std::shared_ptr<Block> norm_of(const FnoOptions& options) {
    if (options.norm == "instance") return std::make_shared<FieldNorm>();
    return std::make_shared<GroupNorm>(1, options.width);
  }

  static at::Tensor run_or_same(const std::shared_ptr<Block>& block, const at::Tensor& input) {
    return block == nullptr ? input : run(*block, input);
  }

  /// The activation follows each sum, except at the end of the last block. It also follows where there is no MLP.
  at::Tensor forward_layers(const FnoLayers& layers, const at::Tensor& input, bool is_last) const {
    const at::Tensor start = is_preactivated_ ? models::gelu(input) : input;
    at::Tensor x = run_or_same(layers.spectral_norm, run(*layers.spectral, start)) + run_or_same(layers.skip, start);
    if (!is_last) x = models::gelu(x);
    if (layers.mlp != nullptr) x = run(*layers.mlp, x) + run_or_same(layers.mlp_skip, start);
    x = run_or_same(layers.mlp_norm, x);
    return is_last || is_preactivated_ ? x : models::gelu(x);
  }

  bool is_preactivated_;
  std::vector<FnoLayers> layers_;
};

/// The coordinates i / n of each axis as channels behind those of the field.
at::Tensor with_grid(const at::Tensor& field) {
  Tensors channels = {field};
  for (std::int64_t dim = kFirstSpaceDim; dim < field.dim(); ++dim) {
    const std::int64_t points = field.size(dim);
    std::vector<std::int64_t> shape(static_cast<std::size_t>(field.dim()), 1);
    shape[static_cast<std::size_t>(dim)] = points;
    std::vector<std::int64_t> sizes = field.sizes().vec();
    sizes[1] = 1;
    const at::Tensor line = at::arange(points, field.options()) / static_cast<double>(points);
    channels.push_back(line.view(shape).expand(sizes));
  }
  return at::cat(channels, 1);
}

class Fno : public Model {
 public:
  Fno(const FnoOptions& options, std::int64_t channels, std::int64_t outputs)
      : has_grid_(options.has_grid), padding_(options.padding) {
    blocks_ = register_module("fno_blocks", std::make_shared<FnoBlocks>(options));
    const std::int64_t inputs = channels + (options.has_grid ? options.axes() : 0);
    lifting_ = register_module("lifting", std::make_shared<PointMlp>(inputs, options.lifting_width, options.width));
    projection_ =
        register_module("projection", std::make_shared<PointMlp>(options.width, options.projection_width, outputs));
  }

  /// [N, C, space...] -> [N, outputs, space...]
  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor field = input.contiguous();
    const at::Tensor x = run(*lifting_, has_grid_ ? with_grid(field) : field);
    if (padding_.empty()) return run(*projection_, run(*blocks_, x));
    return run(*projection_, without_borders(run(*blocks_, with_borders(x)), x).contiguous());
  }

 private:
  /// The zeros at both ends of an axis.
  std::int64_t border(const at::Tensor& field, std::int64_t dim) const {
    const double part = padding_[static_cast<std::size_t>(dim - kFirstSpaceDim)];
    return static_cast<std::int64_t>(std::nearbyint(part * static_cast<double>(field.size(dim))));
  }

  at::Tensor with_borders(const at::Tensor& field) const {
    std::vector<std::int64_t> zeros;  // order of axes: last to first; before and behind each
    for (std::int64_t dim = field.dim() - 1; dim >= kFirstSpaceDim; --dim) {
      zeros.insert(zeros.end(), 2, border(field, dim));
    }
    return at::constant_pad_nd(field, zeros, 0);
  }

  /// @param like  the field before with_borders
  at::Tensor without_borders(at::Tensor field, const at::Tensor& like) const {
    for (std::int64_t dim = kFirstSpaceDim; dim < like.dim(); ++dim) {
      field = field.narrow(dim, border(like, dim), like.size(dim));
    }
    return field;
  }

  bool has_grid_;
  std::vector<double> padding_;
  std::shared_ptr<FnoBlocks> blocks_;
  std::shared_ptr<PointMlp> lifting_;
  std::shared_ptr<PointMlp> projection_;
};

/// One value for each axis, from one for each or one for all.
template <class T>
std::vector<T> value_of_each_axis(const Section& model, const std::string& key, std::vector<T> values,
                                  std::size_t axes) {
  if (values.size() == 1) values.resize(axes, values.front());
  if (values.size() == axes) return values;
  throw ConfigError(model.cite(key) + ": there are " + std::to_string(values.size()) + " values, but " +
                    axes_text(axes) + " of space; give one for all axes, or one for each");
}

/// A part of the width, at least one channel.
std::int64_t part_of_width(const Section& model, const std::string& key, double (*to_integer)(double)) {
  const double part = model.real(key) * static_cast<double>(model.integer("width"));
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(to_integer(part)));
}

FnoOptions fno_options(const Section& model, const Task& task) {
  const std::size_t axes = task.sample_shape.size() - 1;
  const auto whole = [](double value) { return std::trunc(value); };
  const auto nearest = [](double value) { return std::nearbyint(value); };
  FnoOptions options{.width = model.integer("width"),
                     .depth = model.integer("depth"),
                     .modes = value_of_each_axis(model, "modes", model.integers("modes"), axes),
                     .mlp_width = 0,
                     .lifting_width = part_of_width(model, "lifting_ratio", whole),
                     .projection_width = part_of_width(model, "projection_ratio", whole),
                     .skip = model.text("skip"),
                     .mlp_skip = model.text("mlp_skip"),
                     .norm = model.text("norm"),
                     .padding = model.reals("domain_padding"),
                     .is_preactivated = model.boolean("preactivation"),
                     .has_grid = model.boolean("grid")};
  if (model.boolean("channel_mlp")) options.mlp_width = part_of_width(model, "mlp_ratio", nearest);
  if (!options.padding.empty()) {
    options.padding = value_of_each_axis(model, "domain_padding", options.padding, axes);
  }
  return options;
}

void check_fno(const Section& model, const FnoOptions& options) {
  if (options.norm != "none" && options.norm != "one_group" && options.norm != "instance") {
    throw ConfigError(model.cite("norm") + ": fno has none, one_group or instance");
  }
  if (options.is_preactivated && options.norm != "none") {
    throw ConfigError(model.cite("preactivation") + ": it cannot be combined with model.norm=" + options.norm +
                      "; reset one of them");
  }
}

}  // namespace

std::shared_ptr<Model> make_fno(const Section& model, const Task& task) {
  require_space("fno", task);
  require_head(model, task);
  require_fields("fno", task);
  const FnoOptions options = fno_options(model, task);
  check_fno(model, options);
  return std::make_shared<Fno>(options, task.sample_shape[0], output_channels(task));
}

}  // namespace lockstep::models
