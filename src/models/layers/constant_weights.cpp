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

#include "core/numbers/processor_level.hpp"
#include "kernels/kernels.hpp"
#include "models/layers/channels_last.hpp"
#include "models/layers/linear_kernels.hpp"
#include "models/layers/winograd.hpp"

namespace lockstep::models {

namespace {

/// Rows of the left factor that oneDNN packs a matrix for. The order of its sums follows from them, so that they do not
/// depend on the batch that comes first.
constexpr std::int64_t kPackedRows = 1024;
constexpr std::int64_t kFewestSummedRows = 128;  // the layers one by one are as fast below

thread_local ConstantWeights* innermost = nullptr;

using PostScalars = c10::List<std::optional<at::Scalar>>;
using OptionalTensor = std::optional<at::Tensor>;

OptionalTensor optional_of(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

/// The type of products now, if it is one of those that are kept.
std::optional<at::ScalarType> type_of_products() {
  if (!at::autocast::is_autocast_enabled(at::kCPU)) return at::kFloat;
  const bool is_of_one_dnn = at::autocast::get_autocast_dtype(at::kCPU) == at::kBFloat16 &&
                             processor_level() >= ProcessorLevel::avx512 &&
                             !kernels::is_used(kernels::Kernel::rounded_products);
  return is_of_one_dnn ? std::optional(at::kBFloat16) : std::nullopt;
}

/// Whether layers would multiply it in this type.
bool becomes(at::ScalarType type, const at::Tensor& input) {
  return input.scalar_type() == type || input.scalar_type() == at::kFloat;
}

at::Tensor as_type(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.defined() ? tensor.to(type) : tensor;
}

/// oneDNN takes one channel or one pixel for the usual layout, and refuses the sum with an output in this one.
bool can_be_added(const at::Tensor& residual) {
  return is_channels_last(residual) && residual.size(1) > 1 && residual.size(2) * residual.size(3) > 1;
}

/// A matrix in the layout of oneDNN for right factors of products.
at::Tensor pack_matrix(const at::Tensor& weight, at::ScalarType type) {
  using Function = at::Tensor(const at::Tensor&, std::optional<c10::SymInt>);
  static const auto function =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_reorder_linear_weight", "").typed<Function>();
  return function.call(weight.to(type).contiguous(), kPackedRows);
}

ConstantWeights::Packed pack(const Conv2d& conv, const BatchNorm* norm, const at::Tensor& input, at::ScalarType type) {
  ConstantWeights::Packed packed{.weight = conv.weight, .bias = conv.bias};
  if (norm != nullptr) {
    at::Tensor scale = (norm->running_var + norm->eps()).rsqrt();
    if (norm->weight.defined()) scale = scale * norm->weight;
    const at::Tensor offset = conv.bias.defined() ? norm->running_mean - conv.bias : norm->running_mean;
    packed.weight = conv.weight * scale.view({-1, 1, 1, 1});
    packed.bias = norm->bias.defined() ? norm->bias - offset * scale : -offset * scale;
  }
  packed.bias = as_type(packed.bias, type);
  const Convolution& geometry = conv.geometry();
  if (is_pixelwise(conv.weight, geometry)) {
    const at::Tensor matrix = matrix_of(packed.weight);
    const bool is_reordered = type != at::kFloat || kernels::is_used(kernels::Kernel::packed_pixelwise);
    packed.weight = is_reordered ? pack_matrix(matrix, type) : matrix.contiguous();
    return packed;
  }
  if (type == at::kFloat && is_for_winograd(conv.weight, geometry)) {
    const std::int64_t added = 2 * geometry.padding - 2;
    const std::int64_t side = winograd_side(/*samples=*/0, input.size(2) + added, input.size(3) + added);
    const at::Tensor weight = packed.weight.contiguous(at::MemoryFormat::ChannelsLast);
    packed.weight = winograd_weight(weight, /*is_turned=*/false, side);
    return packed;
  }
  packed.weight = at::mkldnn_reorder_conv2d_weight(
      packed.weight.to(type).contiguous().to_mkldnn(), {geometry.padding, geometry.padding},
      {geometry.stride, geometry.stride}, {1, 1}, geometry.groups, input.sizes());
  return packed;
}

/// input weight^T + bias + residual
at::Tensor sum_of_one_dnn(const at::Tensor& input, const ConstantWeights::Packed& packed, const at::Tensor& residual) {
  using Function =
      at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptionalTensor&, std::string_view);
  static const auto function =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "binary").typed<Function>();
  return function.call(input, residual, packed.weight, optional_of(packed.bias), "add");
}

/// Layers of one pixel.
at::Tensor pixelwise(const ConstantWeights::Packed& packed, const at::Tensor& input, std::int64_t stride,
                     const at::Tensor& residual, bool has_relu) {
  const at::Tensor pixels = read_pixels_of(input, stride).contiguous();
  if (!residual.defined()) {
    return images_of(linear_of_one_dnn(pixels, packed.weight, packed.bias, has_relu ? "relu" : "none"));
  }
  at::Tensor output = sum_of_one_dnn(pixels, packed, pixels_of(residual));
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
  // LibTorch fails to add and apply a ReLU in one pass to bfloat16 where oneDNN does not, which is with groups.
  const bool has_fused_relu = has_relu && (geometry.groups == 1 || input.scalar_type() == at::kFloat);
  at::Tensor output = adding.call(
      input, residual, packed.weight, bias, padding, stride, dilation, geometry.groups, "add", at::Scalar(1),
      has_fused_relu ? std::optional<std::string_view>("relu") : std::nullopt, PostScalars(), std::nullopt);
  return has_relu && !has_fused_relu ? output.relu_() : output;
}

}  // namespace

ConstantWeights::ConstantWeights() : outer_(std::exchange(innermost, this)) {}

ConstantWeights::~ConstantWeights() { innermost = outer_; }

at::Tensor convolution_of_constants(const Conv2d& conv, const BatchNorm* norm, const at::Tensor& input,
                                    const at::Tensor& residual, bool has_relu) {
  static const bool has_one_dnn = at::hasMKLDNN();
  const auto type = type_of_products();
  const bool is_constant = innermost != nullptr && has_one_dnn && !is_tapped() && type &&
                           !torch::autograd::compute_requires_grad(input, conv.weight) &&
                           conv.weight.scalar_type() == at::kFloat;
  const bool fits = is_constant && is_channels_last(input) && becomes(*type, input) &&
                    (!residual.defined() || (can_be_added(residual) && residual.scalar_type() == *type)) &&
                    (norm == nullptr || !norm->is_training()) &&
                    input.size(1) / conv.geometry().groups == conv.weight.size(1);
  if (!fits || (norm == nullptr && conv.kind() == LayerKind::depthwise)) return {};
  ConstantWeights::Packed& packed = innermost->convolutions_[{&conv, norm, *type}];
  if (!packed.weight.defined()) packed = pack(conv, norm, input, *type);
  const Convolution& geometry = conv.geometry();
  const at::Tensor factor = input.to(*type);
  if (*type == at::kFloat && is_for_winograd(conv.weight, geometry)) {
    return winograd_convolution(factor, packed.weight, packed.bias, residual, geometry.padding, has_relu);
  }
  return is_pixelwise(conv.weight, geometry) ? pixelwise(packed, factor, geometry.stride, residual, has_relu)
                                             : with_kernel(packed, factor, geometry, residual, has_relu);
}

at::Tensor linear_sum_of_constants(const Linear& layer, const at::Tensor& input, const at::Tensor& residual,
                                   const at::Tensor& scale) {
  static const bool has_one_dnn = at::hasMKLDNN();
  if (innermost == nullptr || !has_one_dnn || !kernels::is_used(kernels::Kernel::linear_sum)) return {};
  const auto is_plain = [](const at::Tensor& tensor) {
    return tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.numel() > 0;
  };
  const at::Tensor& weight = layer.weight;
  const bool fits = !at::autocast::is_autocast_enabled(at::kCPU) && !is_tapped() && is_plain(weight) &&
                    is_plain(input) && is_plain(residual) && input.size(-1) == weight.size(1) &&
                    input.numel() >= kFewestSummedRows * weight.size(1) && residual.is_contiguous() &&
                    residual.size(-1) == weight.size(0) &&
                    residual.sizes().slice(0, residual.dim() - 1) == input.sizes().slice(0, input.dim() - 1) &&
                    !torch::autograd::compute_requires_grad(input, weight, layer.bias, residual);
  if (!fits) return {};
  ConstantWeights::Packed& packed = innermost->sums_[{&layer, scale.defined() ? scale.const_data_ptr() : nullptr}];
  if (!packed.weight.defined()) {
    packed.weight = pack_matrix(scale.defined() ? weight * scale.unsqueeze(1) : weight, at::kFloat);
    packed.bias = layer.bias.defined() && scale.defined() ? layer.bias * scale : layer.bias;
  }
  return sum_of_one_dnn(input.contiguous(), packed, residual);
}

at::Tensor linear_of_constants(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  static const bool has_one_dnn = at::hasMKLDNN();
  if (innermost == nullptr || !has_one_dnn || torch::autograd::compute_requires_grad(input, weight, bias)) return {};
  const auto type = type_of_products();
  const bool fits = type == at::kBFloat16 && input.is_cpu() && becomes(*type, input) && input.numel() > 0 &&
                    weight.requires_grad() && weight.scalar_type() == at::kFloat && weight.dim() == 2 &&
                    input.dim() > 0 && input.size(-1) == weight.size(1);
  if (!fits) return {};
  at::Tensor& packed = innermost->linear_[weight.const_data_ptr()];
  if (!packed.defined()) packed = pack_matrix(weight, *type);
  return linear_of_one_dnn(input.to(*type).contiguous(), packed, as_type(bias, *type));
}

}  // namespace lockstep::models
