// SPDX-License-Identifier: BSD-3-Clause
#include "models/families/inverted_residual.hpp"

#include <torch/types.h>

#include <algorithm>
#include <string>

#include "models/layers/constant_weights.hpp"

namespace lockstep::models {

at::Tensor activated(UnitActivation activation, const at::Tensor& input) {
  switch (activation) {
    case UnitActivation::relu:
      return at::relu(input);
    case UnitActivation::relu6:
      return at::relu6(input);
    case UnitActivation::hardswish:
      return at::hardswish(input);
    case UnitActivation::silu:
      return at::silu(input);
    case UnitActivation::none:
      break;
  }
  return input;
}

ConvNorm::ConvNorm(std::int64_t in, std::int64_t out, const ConvNormOptions& options)
    : activation_(options.activation) {
  conv_ = register_module(
      "0",
      std::make_shared<Conv2d>(in, out, options.kernel,
                               Conv2dOptions{.stride = options.stride, .has_bias = false, .groups = options.groups}));
  norm_ = register_module("1", std::make_shared<BatchNorm>(out, options.norm));
}

at::Tensor ConvNorm::forward(const at::Tensor& input) {
  if (activation_ == UnitActivation::relu) return convolution_norm_relu(*conv_, norm_.get(), input);
  return activated(activation_, convolution_norm(*conv_, *norm_, input));
}

SqueezeExcitation::SqueezeExcitation(std::int64_t channels, std::int64_t squeezed, UnitActivation activation,
                                     bool is_hard)
    : activation_(activation), is_hard_(is_hard) {
  fc1_ = register_module("fc1", std::make_shared<Conv2d>(channels, squeezed, 1));
  fc2_ = register_module("fc2", std::make_shared<Conv2d>(squeezed, channels, 1));
}

at::Tensor SqueezeExcitation::forward(const at::Tensor& input) {
  const at::Tensor means = input.mean({2, 3}, /*keepdim=*/true);
  const at::Tensor factors = run(*fc2_, activated(activation_, run(*fc1_, means)));
  return input * (is_hard_ ? at::hardsigmoid(factors) : at::sigmoid(factors));
}

InvertedResidual::InvertedResidual(const InvertedResidualOptions& options)
    : has_shortcut_(options.stride == 1 && options.in == options.out) {
  layers_ = register_module(options.layers_name, std::make_shared<BlockSequence>());
  int count = 0;
  const auto add = [&](const std::shared_ptr<Block>& layer) { layers_->add(std::to_string(count++), layer); };
  if (options.expanded != options.in) {
    add(std::make_shared<ConvNorm>(options.in, options.expanded,
                                   ConvNormOptions{.activation = options.activation, .norm = options.norm}));
  }
  add(std::make_shared<ConvNorm>(options.expanded, options.expanded,
                                 ConvNormOptions{.kernel = options.kernel,
                                                 .stride = options.stride,
                                                 .groups = options.expanded,
                                                 .activation = options.activation,
                                                 .norm = options.norm}));
  if (options.excitation) add(options.excitation);
  if (options.has_plain_projection) {
    add(std::make_shared<Conv2d>(options.expanded, options.out, 1, Conv2dOptions{.has_bias = false}));
    add(std::make_shared<BatchNorm>(options.out, options.norm));
  } else {
    add(std::make_shared<ConvNorm>(options.expanded, options.out, ConvNormOptions{.norm = options.norm}));
  }
  drop_path_ = register_module("stochastic_depth", std::make_shared<DropPath>(options.drop_path));
}

at::Tensor InvertedResidual::forward(const at::Tensor& input) {
  const at::Tensor output = run(*layers_, input);
  return has_shortcut_ ? input + run(*drop_path_, output) : output;
}

std::int64_t scaled_channels(std::int64_t channels, double factor) {
  constexpr std::int64_t kDivisor = 8;
  const double exact = static_cast<double>(channels) * factor;
  const std::int64_t rounded = static_cast<std::int64_t>(exact + kDivisor / 2.0) / kDivisor * kDivisor;
  const std::int64_t scaled = std::max(kDivisor, rounded);
  return static_cast<double>(scaled) < 0.9 * exact ? scaled + kDivisor : scaled;
}

}  // namespace lockstep::models
