// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/constant_weights.hpp"

#include <lockstep/models/functional.hpp>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/types.h>

#include <array>
#include <optional>
#include <string_view>

#include "models/layers/channels_last.hpp"
#include "models/layers/linear_kernels.hpp"
#include "models/layers/winograd.hpp"

namespace lockstep::models {

namespace {

thread_local ConstantWeights* innermost = nullptr;

using PostScalars = c10::List<std::optional<at::Scalar>>;
using OptionalTensor = std::optional<at::Tensor>;

OptionalTensor optional_of(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

/// oneDNN takes one channel or one pixel for the usual layout, and refuses the sum with an output in this one.
bool can_be_added(const at::Tensor& residual) {
  return is_channels_last_float(residual) && residual.size(1) > 1 && residual.size(2) * residual.size(3) > 1;
}

ConstantWeights::Packed pack(const Conv2d& conv, const BatchNorm* norm, const at::Tensor& input) {
  ConstantWeights::Packed packed{.weight = conv.weight, .bias = conv.bias};
  if (norm != nullptr) {
    at::Tensor scale = (norm->running_var + norm->eps()).rsqrt();
    if (norm->weight.defined()) scale = scale * norm->weight;
    const at::Tensor offset = conv.bias.defined() ? norm->running_mean - conv.bias : norm->running_mean;
    packed.weight = conv.weight * scale.view({-1, 1, 1, 1});
    packed.bias = norm->bias.defined() ? norm->bias - offset * scale : -offset * scale;
  }
  const Convolution& geometry = conv.geometry();
  if (is_pixelwise(conv.weight, geometry)) {
    packed.weight = matrix_of(packed.weight).contiguous();
    return packed;
  }
  if (is_for_winograd(conv.weight, geometry)) {
    const std::int64_t added = 2 * geometry.padding - 2;
    const std::int64_t side = winograd_side(/*samples=*/0, input.size(2) + added, input.size(3) + added);
    const at::Tensor weight = packed.weight.contiguous(at::MemoryFormat::ChannelsLast);
    packed.weight = winograd_weight(weight, /*is_turned=*/false, side);
    return packed;
  }
  packed.weight =
      at::mkldnn_reorder_conv2d_weight(packed.weight.contiguous().to_mkldnn(), {geometry.padding, geometry.padding},
                                       {geometry.stride, geometry.stride}, {1, 1}, geometry.groups, input.sizes());
  return packed;
}

/// Layers of one pixel.
at::Tensor pixelwise(const ConstantWeights::Packed& packed, const at::Tensor& input, std::int64_t stride,
                     const at::Tensor& residual, bool has_relu) {
  const at::Tensor pixels = read_pixels_of(input, stride).contiguous();
  if (!residual.defined()) {
    return images_of(linear_of_one_dnn(pixels, packed.weight, packed.bias, has_relu ? "relu" : "none"));
  }
  using Adding =
      at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptionalTensor&, std::string_view);
  static const auto adding =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "binary").typed<Adding>();
  at::Tensor output = adding.call(pixels, pixels_of(residual), packed.weight, optional_of(packed.bias), "add");
  if (has_relu) output.relu_();
  return images_of(output);
}

at::Tensor with_kernel(const ConstantWeights::Packed& packed, const at::Tensor& input, const Convolution& geometry,
                       const at::Tensor& residual, bool has_relu) {
  using Sizes = at::IntArrayRef;
  using Plain = at::Tensor(const at::Tensor&, const at::Tensor&, const OptionalTensor&, Sizes, Sizes, Sizes,
                           std::int64_t, std::string_view, PostScalars, std::optional<std::string_view>);
  using Adding = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptionalTensor&, Sizes,
                            Sizes, Sizes, std::int64_t, std::string_view, std::optional<at::Scalar>,
                            std::optional<std::string_view>, PostScalars, std::optional<std::string_view>);
  auto& dispatcher = c10::Dispatcher::singleton();
  static const auto plain = dispatcher.findSchemaOrThrow("mkldnn::_convolution_pointwise", "").typed<Plain>();
  static const auto adding = dispatcher.findSchemaOrThrow("mkldnn::_convolution_pointwise", "binary").typed<Adding>();
  const std::array<std::int64_t, 2> padding = {geometry.padding, geometry.padding};
  const std::array<std::int64_t, 2> stride = {geometry.stride, geometry.stride};
  const std::array<std::int64_t, 2> dilation = {1, 1};
  const OptionalTensor bias = optional_of(packed.bias);
  if (!residual.defined()) {
    return plain.call(input, packed.weight, bias, padding, stride, dilation, geometry.groups,
                      has_relu ? "relu" : "none", PostScalars(), "");
  }
  return adding.call(input, residual, packed.weight, bias, padding, stride, dilation, geometry.groups, "add",
                     at::Scalar(1), has_relu ? std::optional<std::string_view>("relu") : std::nullopt, PostScalars(),
                     std::nullopt);
}

}  // namespace

ConstantWeights::ConstantWeights() : outer_(std::exchange(innermost, this)) {}

ConstantWeights::~ConstantWeights() { innermost = outer_; }

at::Tensor convolution_of_constants(const Conv2d& conv, const BatchNorm* norm, const at::Tensor& input,
                                    const at::Tensor& residual, bool has_relu) {
  static const bool has_one_dnn = at::hasMKLDNN();
  const bool is_constant = innermost != nullptr && has_one_dnn && !is_tapped() &&
                           !torch::autograd::compute_requires_grad(input, conv.weight) &&
                           !at::autocast::is_autocast_enabled(at::kCPU) && conv.weight.scalar_type() == at::kFloat;
  const bool fits = is_constant && is_channels_last_float(input) && (!residual.defined() || can_be_added(residual)) &&
                    (norm == nullptr || !norm->is_training()) &&
                    input.size(1) / conv.geometry().groups == conv.weight.size(1);
  if (!fits || (norm == nullptr && conv.kind() == LayerKind::depthwise)) return {};
  ConstantWeights::Packed& packed = innermost->packed_[{&conv, norm}];
  if (!packed.weight.defined()) packed = pack(conv, norm, input);
  const Convolution& geometry = conv.geometry();
  if (is_for_winograd(conv.weight, geometry)) {
    return winograd_convolution(input, packed.weight, packed.bias, residual, geometry.padding, has_relu);
  }
  return is_pixelwise(conv.weight, geometry) ? pixelwise(packed, input, geometry.stride, residual, has_relu)
                                             : with_kernel(packed, input, geometry, residual, has_relu);
}

}  // namespace lockstep::models
