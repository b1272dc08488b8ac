// SPDX-License-Identifier: BSD-3-Clause
// Batch norm over several devices, which LibTorch has for CUDA only. Source of the formulas, of the types of counts and
// of results: aten/src/ATen/native/cuda/Normalization.cuh, batch_norm_reduce_statistics_kernel,
// batch_norm_transform_input_kernel, batch_norm_backward_reduce_kernel, batch_norm_backward_elemt_kernel_impl. LibTorch
// sums in float32, these functions in float64.
//
// Dimensions: N samples, C channels, W devices.
#include <ATen/TensorOperators.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros_like.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "fake_gpu/kernels/own_functions.hpp"

namespace lockstep::fake_gpu {

namespace {

using TensorPair = std::tuple<at::Tensor, at::Tensor>;

at::Tensor wide(const at::Tensor& tensor) { return tensor.to(at::kDouble); }

/// The type in which LibTorch keeps statistics of numbers of a type.
at::ScalarType statistics_type(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }

/// All dimensions but that of the channels.
std::vector<std::int64_t> summed_dimensions(const at::Tensor& input) {
  std::vector<std::int64_t> dimensions;
  for (std::int64_t i = 0; i < input.dim(); ++i) {
    if (i != 1) dimensions.push_back(i);
  }
  return dimensions;
}

/// A value for each channel, in float64 and in a shape to be combined with the input.
at::Tensor per_channel(const at::Tensor& values, const at::Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = input.size(1);
  return wide(values).view(shape);
}

bool is_given(const std::optional<at::Tensor>& tensor) { return tensor && tensor->defined(); }

void check_type(const char* name, const at::Tensor& tensor, at::ScalarType type) {
  TORCH_CHECK(tensor.scalar_type() == type, "Expected ", name, " to have type ", type, " but got ",
              tensor.scalar_type());
}

TensorPair batch_norm_stats(const at::Tensor& input, double epsilon) {
  const auto [variance, mean] = at::var_mean(wide(input), summed_dimensions(input), /*correction=*/0);
  const at::ScalarType type = statistics_type(input.scalar_type());
  return {mean.to(type), (variance + epsilon).rsqrt().to(type)};
}

at::Tensor batch_norm_elemt(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor& mean, const at::Tensor& invstd,
                            double) {
  at::Tensor output = (wide(input) - per_channel(mean, input)) * per_channel(invstd, input);
  if (is_given(weight)) output = output * per_channel(*weight, input);
  if (is_given(bias)) output = output + per_channel(*bias, input);
  return output.to(input.scalar_type());
}

void average_into(const std::optional<at::Tensor>& running, const at::Tensor& value, double momentum) {
  if (is_given(running)) running->copy_(wide(*running) * (1 - momentum) + value * momentum);
}

/// Combines the statistics of devices, one after the other.
/// @param mean, invstd  [W, C]
/// @param counts        [W], the number of elements of a channel on each device
TensorPair combine(const at::Tensor& mean, const at::Tensor& invstd, const std::optional<at::Tensor>& running_mean,
                   const std::optional<at::Tensor>& running_var, double momentum, double epsilon,
                   const std::vector<double>& counts) {
  at::Tensor average = at::zeros_like(wide(mean[0]));
  at::Tensor deviation = at::zeros_like(average);  // the sum of squares of deviations
  double total = 0;
  for (std::size_t device = 0; device < counts.size(); ++device) {
    const double count = counts[device];
    const at::Tensor its_mean = wide(mean[static_cast<std::int64_t>(device)]);
    const at::Tensor its_invstd = wide(invstd[static_cast<std::int64_t>(device)]);
    const double share = count / (total + count);
    deviation = deviation + (its_invstd.pow(-2) - epsilon) * count + (average - its_mean).square() * (total * share);
    average = average * (1 - share) + its_mean * share;
    total += count;
  }
  average_into(running_mean, average, momentum);
  average_into(running_var, deviation / (total - 1), momentum);
  const at::ScalarType type = statistics_type(mean.scalar_type());
  return {average.to(type), (deviation / total + epsilon).rsqrt().to(type)};
}

TensorPair batch_norm_gather_stats(const at::Tensor&, const at::Tensor& mean, const at::Tensor& invstd,
                                   const std::optional<at::Tensor>& running_mean,
                                   const std::optional<at::Tensor>& running_var, double momentum, double epsilon,
                                   std::int64_t count) {
  const std::vector<double> counts(static_cast<std::size_t>(mean.size(0)), static_cast<double>(count));
  return combine(mean, invstd, running_mean, running_var, momentum, epsilon, counts);
}

TensorPair batch_norm_gather_stats_with_counts(const at::Tensor& input, const at::Tensor& mean,
                                               const at::Tensor& invstd, const std::optional<at::Tensor>& running_mean,
                                               const std::optional<at::Tensor>& running_var, double momentum,
                                               double epsilon, const at::Tensor& counts) {
  const at::ScalarType type = is_given(running_mean) ? running_mean->scalar_type() : input.scalar_type();
  check_type("counts", counts, type);
  check_type("mean", mean, statistics_type(type));
  const at::Tensor values = wide(counts).contiguous();
  const auto* const first = values.const_data_ptr<double>();
  return combine(mean, invstd, running_mean, running_var, momentum, epsilon, {first, first + mean.size(0)});
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_backward_reduce(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
    const std::optional<at::Tensor>& weight, bool needs_input, bool needs_weight, bool needs_bias) {
  const std::vector<std::int64_t> dimensions = summed_dimensions(input);
  const at::Tensor gradient = wide(grad_output);
  const at::Tensor sum = gradient.sum(dimensions);
  const at::Tensor sum_of_products = (gradient * (wide(input) - per_channel(mean, input))).sum(dimensions);
  const at::ScalarType type = is_given(weight) ? weight->scalar_type() : mean.scalar_type();
  return {needs_input ? sum.to(mean.scalar_type()) : at::Tensor(),
          needs_input ? sum_of_products.to(mean.scalar_type()) : at::Tensor(),
          needs_weight ? (sum_of_products * wide(invstd)).to(type) : at::Tensor(),
          needs_bias ? sum.to(type) : at::Tensor()};
}

/// @param counts  [W] int32
at::Tensor batch_norm_backward_elemt(const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& mean,
                                     const at::Tensor& invstd, const std::optional<at::Tensor>& weight,
                                     const at::Tensor& sum_dy, const at::Tensor& sum_dy_xmu, const at::Tensor& counts) {
  check_type("count", counts, at::kInt);
  const at::Tensor total = wide(counts).sum();
  const at::Tensor scale = per_channel(invstd, input);
  const at::Tensor projection = scale.square() * per_channel(sum_dy_xmu, input) / total;
  at::Tensor gradient =
      wide(grad_output) - per_channel(sum_dy, input) / total - (wide(input) - per_channel(mean, input)) * projection;
  gradient = gradient * scale;
  if (is_given(weight)) gradient = gradient * per_channel(*weight, input);
  return gradient.to(input.scalar_type());
}

}  // namespace

void add_sync_batch_norm_functions(OwnFunctions& rows) {
  rows.emplace("aten::batch_norm_stats", boxable(batch_norm_stats));
  rows.emplace("aten::batch_norm_elemt", boxable(batch_norm_elemt));
  rows.emplace("aten::batch_norm_gather_stats", boxable(batch_norm_gather_stats));
  rows.emplace("aten::batch_norm_gather_stats_with_counts", boxable(batch_norm_gather_stats_with_counts));
  rows.emplace("aten::batch_norm_backward_reduce", boxable(batch_norm_backward_reduce));
  rows.emplace("aten::batch_norm_backward_elemt", boxable(batch_norm_backward_elemt));
}

}  // namespace lockstep::fake_gpu
