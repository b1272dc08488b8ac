// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/models/functional.hpp>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/types.h>

#include <algorithm>
#include <array>

#include "kernels/convolution_products.hpp"
#include "kernels/depthwise.hpp"
#include "kernels/kernels.hpp"
#include "kernels/winograd.hpp"
#include "models/layers/channels_last.hpp"
#include "models/layers/gradient_sink.hpp"
#include "models/layers/linear_kernels.hpp"
#include "models/layers/recorded.hpp"
#include "models/layers/winograd.hpp"

namespace lockstep::models {

namespace {

constexpr std::int64_t kFewestPixels = 256;  // if there are fewer, transforming the weight costs more than it saves
constexpr std::int64_t kTaps = 9;            // weights of a kernel of 3x3

// Tiles of 4x4 pixels need more time for the transform of the weight, and of the sums of its gradient, which are 36
// numbers for 9 weights instead of 16. These limits were measured with 64 to 512 channels.
constexpr std::int64_t kFewestLargeTiles = 128;
constexpr std::int64_t kFewestLargeTilesOfImage = 9;  // limit of one image if the weight serves many batches
constexpr std::int64_t kFewestSummedLargeTiles = 640;

std::int64_t tiles_of(std::int64_t height, std::int64_t width, std::int64_t side) {
  return kernels::winograd_tiles(height, side) * kernels::winograd_tiles(width, side);
}

/// Memory for `count` numbers of each position.
at::Tensor values_of_positions(std::int64_t side, std::int64_t count) {
  return at::empty({kernels::winograd_positions(side), kernels::winograd_distance(count)}, at::kFloat);
}

const float* memory_of(const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr; }

// N samples, I input channels, O output channels, H x W pixels.

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

at::Tensor convolution_of_library(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                  const Convolution& geometry) {
  if (geometry.is_transposed)
    return at::conv_transpose2d(input, weight, bias, geometry.stride, geometry.padding, 0, geometry.groups);
  if (input.dim() == 4 && skips_pixels(weight, geometry)) {
    return at::conv2d(images_of(read_pixels_of(input, geometry.stride)), weight, bias);
  }
  return at::conv2d(input, weight, bias, geometry.stride, geometry.padding, /*dilation=*/1, geometry.groups);
}

/// Whether each channel has a kernel of its own, of a size for which our product is the faster one.
bool has_fast_kernel_per_channel(const at::Tensor& weight, const Convolution& geometry) {
  if (weight.dim() != 4) return false;
  const bool is_small = weight.size(3) == 3;
  return kernels::is_used(is_small ? kernels::Kernel::depthwise_3x3 : kernels::Kernel::depthwise) &&
         !geometry.is_transposed && geometry.groups == weight.size(0) && weight.size(1) == 1 &&
         weight.size(2) == weight.size(3) && kernels::is_depthwise_size(weight.size(3), geometry.stride) &&
         geometry.padding < weight.size(3) && weight.size(0) % kernels::kPatchChannels == 0 && weight.is_contiguous();
}

bool is_fast_depthwise(const at::Tensor& weight, const Convolution& geometry) {
  return weight.scalar_type() == at::kFloat && has_fast_kernel_per_channel(weight, geometry);
}

/// @param images  with the channels innermost
/// @param size    of the result
at::Tensor depthwise_convolution(const at::Tensor& images, const at::Tensor& weight, const at::Tensor& bias,
                                 at::IntArrayRef size, const Convolution& geometry, bool is_turned) {
  at::Tensor result = at::empty(size, images.options().memory_format(at::MemoryFormat::ChannelsLast));
  const KernelRecord record("lockstep::depthwise", 2 * result.numel() * weight.size(2) * weight.size(3));
  const kernels::DepthwiseConvolution arguments{.images = images.const_data_ptr<float>(),
                                                .weight = weight.const_data_ptr<float>(),
                                                .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
                                                .samples = images.size(0),
                                                .height = images.size(2),
                                                .width = images.size(3),
                                                .channels = images.size(1),
                                                .kernel = weight.size(3),
                                                .out_height = size[2],
                                                .out_width = size[3],
                                                .stride = geometry.stride,
                                                .padding = geometry.padding,
                                                .is_turned = is_turned};
  at::parallel_for(0, images.size(0) * kernels::depthwise_blocks(images.size(1)), 1,
                   [&](std::int64_t begin, std::int64_t end) {
                     kernels::write_depthwise_convolution(arguments, begin, end, result.mutable_data_ptr<float>());
                   });
  return result;
}

at::Tensor depthwise_output(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                            const Convolution& geometry) {
  const auto size = [&](std::int64_t side) {
    return (side + 2 * geometry.padding - weight.size(3)) / geometry.stride + 1;
  };
  return depthwise_convolution(input, weight, bias,
                               {input.size(0), input.size(1), size(input.size(2)), size(input.size(3))}, geometry,
                               /*is_turned=*/false);
}

at::Tensor convolution_output(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                              const Convolution& geometry) {
  // LibTorch has more to say of shapes that do not fit.
  const bool has_four = weight.dim() == 4 && input.dim() == 4;
  const bool is_large = has_four && std::min(input.size(2), input.size(3)) + 2 * geometry.padding >= weight.size(2);
  if (is_large && input.size(1) == weight.size(0) && is_channels_last_float(input) &&
      is_fast_depthwise(weight, geometry)) {
    return depthwise_output(input, weight, bias, geometry);
  }
  const bool fits = is_large && input.size(1) == weight.size(1) && is_channels_last_float(input);
  if (fits && is_pixelwise(weight, geometry)) {
    return images_of(linear_output(read_pixels_of(input, geometry.stride).contiguous(), matrix_of(weight), bias));
  }
  if (fits && is_for_winograd(weight, geometry) && is_transformed_once(input.numel() / input.size(1))) {
    const std::int64_t added = 2 * geometry.padding - 2;
    const std::int64_t side = winograd_side(input.size(0), input.size(2) + added, input.size(3) + added);
    return winograd_convolution(input, winograd_weight(weight, /*is_turned=*/false, side), bias, {}, geometry.padding,
                                /*has_relu=*/false);
  }
  return convolution_of_library(input, weight, bias, geometry);
}

void write_patch_product(const kernels::PatchProduct& product, float* result) {
  at::parallel_for(0, kernels::patch_panels(product), kernels::kGrainPanels, [&](std::int64_t begin, std::int64_t end) {
    kernels::write_patch_product(product, begin, end, result);
  });
}

class ConvolutionBackward : public torch::autograd::Node {
 public:
  /// @param values  of the weight in the forward
  ConvolutionBackward(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& values,
                      const at::Tensor& bias, const Convolution& geometry)
      : Node(torch::autograd::collect_next_edges(input, weight, bias)),
        input_(input, /*is_output=*/false),
        values_(values, /*is_output=*/false),
        weight_(weight),
        bias_(bias),
        geometry_(geometry) {}

  std::string name() const override { return "ConvolutionBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard<std::mutex> hold(mutex_);
    variable_list result(3);
    if (!gradients[0].defined()) return result;
    const at::Tensor input = input_.unpack();
    const bool is_recorded = at::GradMode::is_enabled();  // true if create_graph was requested
    const at::Tensor weight = is_recorded ? weight_ : values_.unpack();
    const bool is_last = !is_recorded && is_channels_last_float(input);
    const at::Tensor gradient = is_last ? gradients[0].contiguous(at::MemoryFormat::ChannelsLast) : gradients[0];
    std::array<bool, 3> by_library = {task_should_compute_output(0), task_should_compute_output(1),
                                      task_should_compute_output(2)};
    const bool is_by_pixels = is_last && is_pixelwise(weight, geometry_);
    if (is_by_pixels && by_library[0]) {
      const at::Tensor rows = pixels_of(gradient).reshape({-1, weight.size(0)});
      const at::Tensor pixels = linear_input_gradient(rows, matrix_of(weight))
                                    .view({input.size(0), gradient.size(2), gradient.size(3), input.size(1)});
      result[0] = geometry_.stride == 1 ? images_of(pixels) : at::zeros_like(input);
      if (geometry_.stride != 1) read_pixels_of(result[0], geometry_.stride).copy_(pixels);
      by_library[0] = false;
    }
    if (is_last && by_library[0] && geometry_.stride == 1 && is_fast_depthwise(weight, geometry_)) {
      const Convolution turned{.padding = weight.size(3) - 1 - geometry_.padding, .groups = geometry_.groups};
      result[0] = depthwise_convolution(gradient, weight, {}, input.sizes(), turned, /*is_turned=*/true);
      by_library[0] = false;
    }
    if (is_last && by_library[0] && is_by_winograd(weight, gradient)) {
      const std::int64_t side = winograd_side(input.size(0), input.size(2), input.size(3));
      result[0] = winograd_convolution(gradient, winograd_weight(weight, /*is_turned=*/true, side), {}, {},
                                       2 - geometry_.padding, /*has_relu=*/false);
      by_library[0] = false;
    }
    if (is_last && by_library[1] && (is_for_patch_product(weight) || is_by_winograd(weight, gradient))) {
      result[1] = weight_gradient(gradient, input, weight);
      by_library[1] = false;
    }
    if (is_last && by_library[2]) {
      result[2] = bias_gradient(bias_, pixels_of(gradient).reshape({-1, gradient.size(1)}));
      by_library[2] = false;
    }
    if (!by_library[0] && !by_library[1] && !by_library[2]) return result;
    const bool skips = skips_pixels(weight, geometry_);
    const std::int64_t stride = skips ? 1 : geometry_.stride;
    const at::Tensor images = skips ? images_of(read_pixels_of(input, geometry_.stride).contiguous()) : input;
    auto [of_input, of_weight, of_bias] = at::convolution_backward(
        gradient, images, weight, bias_.defined() ? at::OptionalIntArrayRef(bias_.sizes()) : std::nullopt,
        {stride, stride}, {geometry_.padding, geometry_.padding}, {1, 1}, geometry_.is_transposed, {0, 0},
        geometry_.groups, by_library);
    if (by_library[0]) {
      result[0] = skips ? spread_pixels(pixels_of(of_input), input.sizes(), geometry_.stride) : of_input;
    }
    if (by_library[1]) result[1] = of_weight;
    if (by_library[2]) result[2] = of_bias;
    return result;
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> hold(mutex_);
    input_.reset_data();
    values_.reset_data();
  }

 private:
  bool is_by_winograd(const at::Tensor& weight, const at::Tensor& gradient) const {
    return is_for_winograd(weight, geometry_) && is_transformed_once(gradient.numel() / gradient.size(1));
  }

  bool is_for_patch_product(const at::Tensor& weight) const {
    if (!weight.is_contiguous(at::MemoryFormat::ChannelsLast)) return false;
    if (is_fast_depthwise(weight, geometry_)) return true;
    return kernels::is_used(kernels::Kernel::patch_product) && geometry_.groups == 1 &&
           weight.size(1) % kernels::kPatchChannels == 0 && weight.size(0) % kernels::kPatchOutputs == 0;
  }

  /// @return  undefined where it is in the sink of the parameter
  at::Tensor weight_gradient(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight) const {
    const auto write = [&](const at::Tensor& target) {
      // A transposed convolution is the gradient of a convolution, so that the two change places.
      const at::Tensor& images = geometry_.is_transposed ? gradient : input;
      const at::Tensor& outputs = geometry_.is_transposed ? input : gradient;
      const kernels::PatchProduct product{.images = images.const_data_ptr<float>(),
                                          .gradients = outputs.const_data_ptr<float>(),
                                          .samples = images.size(0),
                                          .height = images.size(2),
                                          .width = images.size(3),
                                          .channels = images.size(1),
                                          .out_height = outputs.size(2),
                                          .out_width = outputs.size(3),
                                          .outputs = outputs.size(1),
                                          .kernel_height = weight.size(2),
                                          .kernel_width = weight.size(3),
                                          .stride = geometry_.stride,
                                          .padding = geometry_.padding};
      auto* const result = target.mutable_data_ptr<float>();
      if (is_by_winograd(weight, gradient)) {
        const std::int64_t side = winograd_gradient_side(gradient);
        return write_winograd_gradient(input, gradient, geometry_.padding, side, result);
      }
      if (!is_fast_depthwise(weight, geometry_)) return write_patch_product(product, result);
      at::parallel_for(0, kernels::depthwise_blocks(product.channels), 1, [&](std::int64_t begin, std::int64_t end) {
        kernels::write_depthwise_product(product, begin, end, result);
      });
    };
    const auto fresh = [&] {
      at::Tensor result = at::empty_like(weight, at::MemoryFormat::ChannelsLast);
      write(result);
      return result;
    };
    const bool is_written =
        weight_.is_contiguous(at::MemoryFormat::ChannelsLast) &&
        write_to_sink(weight_, at::kFloat, write, [&](const at::Tensor& view) { view.add_(fresh()); });
    return is_written ? at::Tensor() : fresh();
  }

  SavedVariable input_;
  SavedVariable values_;
  at::Tensor weight_;
  at::Tensor bias_;  // its values are not needed, so they may change
  Convolution geometry_;
};

/// @param values  of the weight
at::Tensor recorded_convolution(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& values,
                                const at::Tensor& bias, const Convolution& geometry) {
  if (!torch::autograd::compute_requires_grad(input, weight, bias))
    return convolution_output(input, values, bias, geometry);
  return output_of(backward_node<ConvolutionBackward>(input, weight, values, bias, geometry),
                   [&] { return convolution_output(input, values, bias, geometry); });
}

}  // namespace

bool is_for_winograd(const at::Tensor& weight, const Convolution& geometry) {
  return kernels::is_used(kernels::Kernel::winograd) && !geometry.is_transposed && geometry.groups == 1 &&
         geometry.stride == 1 && geometry.padding <= 2 && weight.scalar_type() == at::kFloat && weight.size(2) == 3 &&
         weight.size(3) == 3 && weight.size(0) % kernels::kWinogradPanel == 0 &&
         weight.size(1) % kernels::kWinogradPanel == 0 && weight.is_contiguous(at::MemoryFormat::ChannelsLast);
}

bool is_transformed_once(std::int64_t pixels) { return pixels >= kFewestPixels; }

std::int64_t winograd_side(std::int64_t samples, std::int64_t out_height, std::int64_t out_width) {
  const std::int64_t large = tiles_of(out_height, out_width, 4);
  // Tiles that reach beyond the image may take what the larger ones save.
  const bool are_cheaper = 5 * large * kernels::winograd_positions(4) <=
                           4 * tiles_of(out_height, out_width, 2) * kernels::winograd_positions(2);
  const bool are_enough = samples == 0 ? large >= kFewestLargeTilesOfImage : samples * large >= kFewestLargeTiles;
  return are_cheaper && are_enough ? 4 : 2;
}

std::int64_t winograd_gradient_side(const at::Tensor& gradient) {
  const std::int64_t tiles = gradient.size(0) * tiles_of(gradient.size(2), gradient.size(3), 4);
  return tiles >= kFewestSummedLargeTiles ? winograd_side(gradient.size(0), gradient.size(2), gradient.size(3)) : 2;
}

at::Tensor winograd_weight(const at::Tensor& weight, bool is_turned, std::int64_t side) {
  const std::int64_t outputs = weight.size(0);
  const std::int64_t channels = weight.size(1);
  const std::int64_t columns = is_turned ? channels : outputs;
  at::Tensor result = at::empty({kernels::winograd_positions(side), kernels::winograd_distance(outputs * channels)},
                                weight.options().memory_format(at::MemoryFormat::Contiguous));
  const KernelRecord record("lockstep::winograd_weight");
  at::parallel_for(0, columns / kernels::kWinogradPanel, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t panel = begin; panel < end; ++panel) {
      kernels::write_winograd_panel(weight.const_data_ptr<float>(), outputs, channels, panel, is_turned, side,
                                    result.mutable_data_ptr<float>());
    }
  });
  return result;
}

at::Tensor winograd_convolution(const at::Tensor& images, const at::Tensor& transformed, const at::Tensor& bias,
                                const at::Tensor& residual, std::int64_t padding, bool has_relu) {
  const kernels::WinogradTask task{.side = transformed.size(0) == kernels::winograd_positions(4) ? 4 : 2,
                                   .images = images.const_data_ptr<float>(),
                                   .weight = transformed.const_data_ptr<float>(),
                                   .bias = memory_of(bias),
                                   .residual = memory_of(residual),
                                   .height = images.size(2),
                                   .width = images.size(3),
                                   .channels = images.size(1),
                                   .out_height = images.size(2) + 2 * padding - 2,
                                   .out_width = images.size(3) + 2 * padding - 2,
                                   .outputs = (transformed.size(1) - kernels::winograd_distance(0)) / images.size(1),
                                   .padding = padding,
                                   .has_relu = has_relu};
  at::Tensor result = at::empty({images.size(0), task.outputs, task.out_height, task.out_width},
                                images.options().memory_format(at::MemoryFormat::ChannelsLast));
  const KernelRecord record("lockstep::winograd", 2 * result.numel() * task.channels * kTaps);
  const std::int64_t tiles = task.tiles(images.size(0));
  const std::int64_t blocks = (tiles + kernels::kWinogradTiles - 1) / kernels::kWinogradTiles;
  at::parallel_for(0, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    const at::Tensor left = values_of_positions(task.side, kernels::kWinogradTiles * task.channels);
    const at::Tensor products = values_of_positions(task.side, kernels::kWinogradTiles * task.outputs);
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * kernels::kWinogradTiles;
      const std::int64_t count = std::min(kernels::kWinogradTiles, tiles - first);
      kernels::write_winograd_tiles(task, first, count, left.mutable_data_ptr<float>(),
                                    products.mutable_data_ptr<float>(), result.mutable_data_ptr<float>());
    }
  });
  return result;
}

void write_winograd_gradient(const at::Tensor& images, const at::Tensor& gradient, std::int64_t padding,
                             std::int64_t side, float* result) {
  const kernels::WinogradTask task{.side = side,
                                   .images = images.const_data_ptr<float>(),
                                   .height = images.size(2),
                                   .width = images.size(3),
                                   .channels = images.size(1),
                                   .out_height = gradient.size(2),
                                   .out_width = gradient.size(3),
                                   .outputs = gradient.size(1),
                                   .padding = padding};
  const std::int64_t tiles = task.tiles(images.size(0));
  at::parallel_for(0, task.channels / kernels::kWinogradPanel, 1,
                   [&](std::int64_t first_panel, std::int64_t last_panel) {
                     const std::int64_t begin = first_panel * kernels::kWinogradPanel;
                     const std::int64_t end = last_panel * kernels::kWinogradPanel;
                     const at::Tensor left = values_of_positions(side, kernels::kSummedTiles * task.outputs);
                     const at::Tensor right = values_of_positions(side, kernels::kSummedTiles * (end - begin));
                     const at::Tensor sums = values_of_positions(side, task.outputs * (end - begin)).zero_();
                     for (std::int64_t first = 0; first < tiles; first += kernels::kSummedTiles) {
                       const std::int64_t count = std::min(kernels::kSummedTiles, tiles - first);
                       kernels::add_winograd_tiles(task, gradient.const_data_ptr<float>(), first, count, begin, end,
                                                   left.mutable_data_ptr<float>(), right.mutable_data_ptr<float>(),
                                                   sums.mutable_data_ptr<float>());
                     }
                     kernels::write_winograd_taps(sums.const_data_ptr<float>(), task.outputs, end - begin, side,
                                                  result + begin, task.channels);
                   });
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                       const Convolution& geometry) {
  const bool is_depthwise = input.dim() == 4 && input.is_contiguous(at::MemoryFormat::ChannelsLast) &&
                            has_fast_kernel_per_channel(weight, geometry);
  const auto kernel = is_depthwise ? kernels::Kernel::rounded_depthwise : kernels::Kernel::rounded_products;
  if (const auto type = rounding_of_products(weight, kernel); type && input.is_cpu()) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
    const at::Tensor parameter = as_float(weight);
    const at::Tensor factor = rounded_factor(input, *type);
    return recorded_convolution(factor, parameter, rounded_weight(parameter, *type), as_float(bias), geometry)
        .to(*type);
  }
  const bool is_float = weight.scalar_type() == at::kFloat && weight.is_cpu();
  if (is_float && is_channels_last_float(input) && !at::autocast::is_autocast_enabled(at::kCPU)) {
    return recorded_convolution(input, weight, weight, bias, geometry);
  }
  return convolution_of_library(input, weight, bias, geometry);
}

}  // namespace lockstep::models
