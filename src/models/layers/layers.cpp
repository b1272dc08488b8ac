// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/functional.hpp>
#include <lockstep/models/layers.hpp>

#include <torch/csrc/autograd/functions/utils.h>
#include <torch/nn/init.h>
#include <torch/types.h>

#include <cmath>

#include "models/layers/constant_weights.hpp"
#include "models/layers/initial_values.hpp"
#include "models/layers/recompute.hpp"

namespace lockstep::models {

namespace {

/// Uniform in +-1/sqrt(fan_in), which is what PyTorch's default for Linear and Conv comes to.
at::Tensor uniform_by_fan_in(at::IntArrayRef shape, std::int64_t fan_in) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  at::Tensor values = torch::empty(shape);
  draw_uniform(values, -bound, bound);
  return values;
}

bool records_gradients(const NormInputs& inputs) {
  return torch::autograd::compute_requires_grad(inputs.input, inputs.weight, inputs.bias, inputs.residual);
}

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out, bool has_bias) {
  weight = register_parameter("weight", uniform_by_fan_in({out, in}, in));
  if (has_bias) bias = register_parameter("bias", uniform_by_fan_in({out}, in));
}

at::Tensor Linear::forward(const at::Tensor& input) { return models::linear(input, weight, bias); }

Conv2d::Conv2d(std::int64_t in, std::int64_t out, std::int64_t kernel, const Conv2dOptions& options)
    : geometry_{.stride = options.stride, .padding = options.padding.value_or(kernel / 2), .groups = options.groups} {
  const std::int64_t fan_in = in / options.groups * kernel * kernel;
  weight = register_parameter("weight", uniform_by_fan_in({out, in / options.groups, kernel, kernel}, fan_in));
  if (options.has_bias) bias = register_parameter("bias", uniform_by_fan_in({out}, fan_in));
}

at::Tensor Conv2d::forward(const at::Tensor& input) {
  const at::Tensor output = convolution_of_constants(*this, nullptr, input, {}, /*has_relu=*/false);
  return output.defined() ? output : models::convolution(input, weight, bias, geometry_);
}

ConvTranspose2d::ConvTranspose2d(std::int64_t in, std::int64_t out, std::int64_t kernel, const Conv2dOptions& options)
    : stride_(options.stride), groups_(options.groups) {
  const std::int64_t fan_in = out / groups_ * kernel * kernel;  // PyTorch takes the second dimension as that of inputs
  weight = register_parameter("weight", uniform_by_fan_in({in, out / groups_, kernel, kernel}, fan_in));
  if (options.has_bias) bias = register_parameter("bias", uniform_by_fan_in({out}, fan_in));
}

at::Tensor ConvTranspose2d::forward(const at::Tensor& input) {
  return models::convolution(input, weight, bias, {.stride = stride_, .groups = groups_, .is_transposed = true});
}

BatchNorm::BatchNorm(std::int64_t channels, const BatchNormOptions& options)
    : eps_(options.eps), momentum_(options.momentum) {
  if (options.is_affine) {
    weight = register_parameter("weight", torch::ones({channels}));
    bias = register_parameter("bias", torch::zeros({channels}));
  }
  running_mean = register_buffer("running_mean", torch::zeros({channels}));
  running_var = register_buffer("running_var", torch::ones({channels}));
  num_batches_tracked = register_buffer("num_batches_tracked", torch::zeros({}, at::kLong));
}

at::Tensor BatchNorm::forward(const at::Tensor& input) { return normalize(input, {}, /*has_relu=*/false); }

at::Tensor BatchNorm::forward_relu(const at::Tensor& input, const at::Tensor& residual) {
  return normalize(input, residual, /*has_relu=*/true);
}

at::Tensor BatchNorm::normalize(const at::Tensor& input, const at::Tensor& residual, bool has_relu) {
  at::Tensor output;
  if (!is_training()) {
    const NormInputs inputs{input, weight, bias, residual, eps_, has_relu};
    if (!records_gradients(inputs) && is_for_batch_norm(inputs)) {
      return models::batch_norm_by_statistics(inputs, running_mean, running_var);
    }
    output = at::batch_norm(input, weight, bias, running_mean, running_var, /*training=*/false, 0, eps_, true);
  } else {
    TORCH_CHECK(input.dim() >= 2, "batch normalization needs [N, C, ...], got ", input.sizes());
    const double momentum = count_batch();
    const NormInputs inputs{input, weight, bias, residual, eps_, has_relu};
    if (!training_ && input.numel() > input.size(1) && is_for_batch_norm(inputs)) {
      return models::batch_norm(inputs, running_mean, running_var, momentum);
    }
    output = normalize_batch(input, momentum);
  }
  if (residual.defined()) output = output.add_(residual);
  return has_relu ? output.relu_() : output;
}

/// @return  the weight of this batch in the running statistics
double BatchNorm::count_batch() {
  if (is_recomputing()) return 0;  // a batch that is seen again leaves no trace
  num_batches_tracked.add_(1);
  return momentum_ ? *momentum_ : 1.0 / num_batches_tracked.item<double>();
}

at::Tensor BatchNorm::normalize_batch(const at::Tensor& input, double momentum) {
  if (training_) return training_(*this, input, momentum);
  if (input.numel() == input.size(1)) {
    throw ConfigError("the batch norm layer '" + path() +
                      "' has a single value for each channel of a training batch, which has no variance. Train more "
                      "samples in each forward pass (train.global_batch_size, train.micro_batch, train.lanes), use "
                      "larger images, ddp.sync_batch_norm, or a normalization without batch statistics (model.norm of "
                      "mlp and unet)");
  }
  return at::batch_norm(input, weight, bias, running_mean, running_var, /*training=*/true, momentum, eps_, true);
}

Embedding::Embedding(std::int64_t count, std::int64_t features) {
  weight = register_parameter("weight", torch::empty({count, features}));
  draw_normal(weight, 0.0, 1.0);
}

at::Tensor Embedding::forward(const at::Tensor& tokens) { return models::embedding(tokens, weight); }

LayerNorm::LayerNorm(std::int64_t features, bool has_bias, double eps) : eps_(eps) {
  weight = register_parameter("weight", torch::ones({features}));
  if (has_bias) bias = register_parameter("bias", torch::zeros({features}));
}

at::Tensor LayerNorm::forward(const at::Tensor& input) {
  return at::layer_norm(input, weight.sizes(), weight, bias, eps_);
}

GroupNorm::GroupNorm(std::int64_t groups, std::int64_t channels, double eps) : groups_(groups), eps_(eps) {
  weight = register_parameter("weight", torch::ones({channels}));
  bias = register_parameter("bias", torch::zeros({channels}));
}

at::Tensor GroupNorm::forward(const at::Tensor& input) { return at::group_norm(input, groups_, weight, bias, eps_); }

at::Tensor Dropout::forward(const at::Tensor& input) {
  return is_training() && probability_ > 0 ? at::dropout(input, probability_, true) : input;
}

at::Tensor DropPath::forward(const at::Tensor& input) {
  if (!is_training() || probability_ == 0) return input;
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[0] = input.size(0);
  const double kept = 1 - probability_;
  return input * at::empty(shape, input.options()).bernoulli_(kept).div_(kept);
}

}  // namespace lockstep::models
