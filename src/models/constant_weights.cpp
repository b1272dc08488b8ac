// SPDX-License-Identifier: BSD-3-Clause
#include "models/constant_weights.hpp"

#include <lockstep/models/functional.hpp>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/types.h>

#include <array>
#include <optional>
#include <string_view>

#include "models/channels_last.hpp"

namespace lockstep::models {

namespace {

thread_local ConstantWeights* innermost = nullptr;

using PostScalars = c10::List<std::optional<at::Scalar>>;
using OptionalTensor = std::optional<at::Tensor>;

OptionalTensor optional_of(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

bool is_pixelwise(const Conv2d& conv) {
  const Convolution of = conv.geometry();
  return conv.weight.size(2) == 1 && conv.weight.size(3) == 1 && of.padding == 0 && of.groups == 1;
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
  if (is_pixelwise(conv)) {
    packed.weight = packed.weight.reshape({conv.weight.size(0), conv.weight.size(1)}).contiguous();
    return packed;
  }
  const Convolution of = conv.geometry();
  packed.weight = at::mkldnn_reorder_conv2d_weight(packed.weight.contiguous().to_mkldnn(), {of.padding, of.padding},
                                                   {of.stride, of.stride}, {1, 1}, of.groups, input.sizes());
  return packed;
}

/// Each output pixel is a product of the weight and one input pixel.
at::Tensor pixelwise(const ConstantWeights::Packed& packed, const at::Tensor& input, std::int64_t stride,
                     const at::Tensor& residual, bool has_relu) {
  using Plain = at::Tensor(const at::Tensor&, const at::Tensor&, const OptionalTensor&, std::string_view, PostScalars,
                           std::optional<std::string_view>);
  using Adding =
      at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptionalTensor&, std::string_view);
  auto& dispatcher = c10::Dispatcher::singleton();
  static const auto plain = dispatcher.findSchemaOrThrow("mkldnn::_linear_pointwise", "").typed<Plain>();
  static const auto adding = dispatcher.findSchemaOrThrow("mkldnn::_linear_pointwise", "binary").typed<Adding>();
  const at::Tensor pixels =
      input.permute({0, 2, 3, 1}).slice(1, 0, std::nullopt, stride).slice(2, 0, std::nullopt, stride).contiguous();
  const OptionalTensor bias = optional_of(packed.bias);
  if (!residual.defined()) {
    return plain.call(pixels, packed.weight, bias, has_relu ? "relu" : "none", PostScalars(), "").permute({0, 3, 1, 2});
  }
  at::Tensor output = adding.call(pixels, residual.permute({0, 2, 3, 1}), packed.weight, bias, "add");
  if (has_relu) output.relu_();
  return output.permute({0, 3, 1, 2});
}

at::Tensor with_kernel(const ConstantWeights::Packed& packed, const at::Tensor& input, const Convolution& of,
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
  const std::array<std::int64_t, 2> padding = {of.padding, of.padding};
  const std::array<std::int64_t, 2> stride = {of.stride, of.stride};
  const std::array<std::int64_t, 2> dilation = {1, 1};
  const OptionalTensor bias = optional_of(packed.bias);
  if (!residual.defined()) {
    return plain.call(input, packed.weight, bias, padding, stride, dilation, of.groups, has_relu ? "relu" : "none",
                      PostScalars(), "");
  }
  return adding.call(input, residual, packed.weight, bias, padding, stride, dilation, of.groups, "add", at::Scalar(1),
                     has_relu ? std::optional<std::string_view>("relu") : std::nullopt, PostScalars(), std::nullopt);
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
  const Convolution of = conv.geometry();
  return is_pixelwise(conv) ? pixelwise(packed, input, of.stride, residual, has_relu)
                            : with_kernel(packed, input, of, residual, has_relu);
}

}  // namespace lockstep::models
