// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/space_layers.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/text/table.hpp"
#include "core/text/text.hpp"
#include "models/layers/channels_last.hpp"
#include "models/layers/constant_weights.hpp"
#include "models/layers/initial_values.hpp"

namespace lockstep::models {

namespace {

constexpr std::size_t kMaxAxes = 3;
constexpr std::size_t kImageAxes = 2;

struct PaddingRow {
  std::string name;
  AxisPadding padding;
};

const std::vector<PaddingRow>& padding_rows() {
  static const std::vector<PaddingRow> rows = {{"zero", AxisPadding::zero},
                                               {"circular", AxisPadding::circular},
                                               {"replicate", AxisPadding::replicate},
                                               {"reflect", AxisPadding::reflect}};
  return rows;
}

std::int64_t axes_of(const at::Tensor& field) { return field.dim() - kFirstAxis; }

/// A convolution over 1 or 3 axes.
class SpaceConvolution : public Block {
 public:
  SpaceConvolution(std::size_t axes, std::int64_t in, std::int64_t out, std::int64_t kernel,
                   const SpaceConvolutionOptions& options)
      : options_(options) {
    std::vector<std::int64_t> shape(axes + kFirstAxis, kernel);
    shape[0] = options.is_transposed ? in : out;
    shape[1] = options.is_transposed ? out : in;
    std::int64_t fan_in = shape[1];  // PyTorch takes the second dimension as that of inputs
    for (std::size_t axis = 0; axis < axes; ++axis) fan_in *= kernel;
    const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
    weight_ = register_parameter("weight", torch::empty(shape));
    draw_uniform(weight_, -bound, bound);
    if (!options.has_bias) return;
    bias_ = register_parameter("bias", torch::empty({out}));
    draw_uniform(bias_, -bound, bound);
  }

  at::Tensor forward(const at::Tensor& input) override {
    const std::vector<std::int64_t> stride(static_cast<std::size_t>(axes_of(weight_)), options_.stride);
    const std::vector<std::int64_t> padding(stride.size(), options_.padding);
    const bool is_line = stride.size() == 1;
    if (is_line && is_of_points()) return products(input);
    if (options_.is_transposed) {
      return is_line ? at::conv_transpose1d(input, weight_, bias_, stride)
                     : at::conv_transpose3d(input, weight_, bias_, stride);
    }
    return is_line ? at::conv1d(input, weight_, bias_, stride, padding)
                   : at::conv3d(input, weight_, bias_, stride, padding);
  }

 private:
  /// Does each point of the output depend on one point of the input?
  bool is_of_points() const {
    return weight_.size(kFirstAxis) == 1 && options_.stride == 1 && options_.padding == 0 && !options_.is_transposed;
  }

  /// The convolution of single points as a matrix product for each sample, which takes less time.
  at::Tensor products(const at::Tensor& input) const {
    const at::Tensor weights = weight_.squeeze(kFirstAxis).expand({input.size(0), -1, -1});
    if (!bias_.defined()) return at::bmm(weights, input);
    return at::baddbmm(bias_.unsqueeze(1), weights, input);
  }

  SpaceConvolutionOptions options_;
  at::Tensor weight_;
  at::Tensor bias_;  // undefined = none
};

}  // namespace

std::vector<AxisPadding> axis_paddings(const Section& model, std::size_t axes) {
  const std::vector<std::string> words = words_in(model.text("padding"));
  if (words.size() != 1 && words.size() != axes) {
    throw ConfigError(model.cite("padding") + ": there are " + std::to_string(words.size()) + " paddings, but " +
                      axes_text(axes) + " of space; give one for all axes, or one for each");
  }
  std::vector<AxisPadding> paddings;
  for (const std::string& word : words) {
    paddings.push_back(find_row(padding_rows(), word, model.cite("padding")).padding);
  }
  paddings.resize(axes, paddings.front());
  return paddings;
}

std::shared_ptr<Block> space_convolution(std::size_t axes, std::int64_t in, std::int64_t out, std::int64_t kernel,
                                         const SpaceConvolutionOptions& options) {
  if (axes != kImageAxes) return std::make_shared<SpaceConvolution>(axes, in, out, kernel, options);
  const Conv2dOptions of_images{.stride = options.stride, .has_bias = options.has_bias, .padding = options.padding};
  if (options.is_transposed) return std::make_shared<ConvTranspose2d>(in, out, kernel, of_images);
  return std::make_shared<Conv2d>(in, out, kernel, of_images);
}

PaddedConvolution::PaddedConvolution(const std::vector<AxisPadding>& paddings, std::int64_t in, std::int64_t out,
                                     bool has_bias) {
  const bool is_zero = std::ranges::count(paddings, AxisPadding::zero) == std::ssize(paddings);
  if (!is_zero) paddings_ = paddings;
  layer_ = space_convolution(paddings.size(), in, out, 3, {.has_bias = has_bias, .padding = is_zero ? 1 : 0});
}

at::Tensor PaddedConvolution::with_borders(const at::Tensor& input) const {
  if (paddings_.empty()) return input;
  const at::Tensor field = padded(input, paddings_);
  return paddings_.size() == kImageAxes ? channels_last(field) : field;
}

at::Tensor PaddedConvolution::norm_relu(const at::Tensor& input, Block* norm) const {
  const at::Tensor field = with_borders(input);
  if (auto* const conv = dynamic_cast<Conv2d*>(layer_.get())) return convolution_norm_relu(*conv, norm, field);
  return models::norm_relu(norm, run(*layer_, field));
}

at::Tensor PaddedConvolution::forward(const at::Tensor& input) const { return run(*layer_, with_borders(input)); }

at::Tensor halved(const at::Tensor& input) {
  switch (axes_of(input)) {
    case 1:
      return at::max_pool1d(input, 2);
    case 2:
      return at::max_pool2d(input, 2);
    default:
      return at::max_pool3d(input, 2);
  }
}

at::Tensor doubled(const at::Tensor& input) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t dim = kFirstAxis; dim < input.dim(); ++dim) sizes.push_back(2 * input.size(dim));
  switch (sizes.size()) {
    case 1:
      return at::upsample_linear1d(input, sizes, /*align_corners=*/true);
    case 2:
      return at::upsample_bilinear2d(input, sizes, /*align_corners=*/true);
    default:
      return at::upsample_trilinear3d(input, sizes, /*align_corners=*/true);
  }
}

at::Tensor padded_like(const at::Tensor& input, const at::Tensor& like) {
  std::vector<std::int64_t> zeros;  // order of axes: last to first; before and behind each
  for (std::int64_t dim = input.dim() - 1; dim >= kFirstAxis; --dim) {
    const std::int64_t missing = like.size(dim) - input.size(dim);
    zeros.insert(zeros.end(), {missing / 2, missing - missing / 2});
  }
  const bool is_complete = std::ranges::count(zeros, 0) == std::ssize(zeros);
  return is_complete ? input : at::constant_pad_nd(input, zeros, 0);
}

void require_space(const std::string& name, const Task& task) {
  if (task.is_text) throw ConfigError("model.name: " + name + " needs fields or images, but data.name provides text");
  const std::size_t dims = task.sample_shape.size();
  if (dims < 2 || dims > 1 + kMaxAxes) {
    throw ConfigError("model.name: " + name +
                      " needs samples [channels, space...] with 1 to 3 axes of space, but they have " +
                      std::to_string(std::max<std::size_t>(dims, 1) - 1) + " of them; use mlp for columns");
  }
}

std::string axes_text(std::size_t axes) { return std::to_string(axes) + (axes == 1 ? " axis" : " axes"); }

std::string sizes_text(const Task& task) {
  std::vector<std::string> sizes;
  for (std::size_t dim = 1; dim < task.sample_shape.size(); ++dim) {
    sizes.push_back(std::to_string(task.sample_shape[dim]));
  }
  return joined(sizes, " x ");
}

std::int64_t output_channels(const Task& task) {
  const bool has_fields = task.kind == TaskKind::regression && !task.fields.channels.empty();
  return has_fields ? std::ssize(task.fields.channels) : task.classes;
}

}  // namespace lockstep::models
