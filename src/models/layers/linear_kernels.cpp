// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/linear_kernels.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/types.h>

#include <string_view>
#include <vector>

#include "kernels/dot_products.hpp"
#include "kernels/kernels.hpp"
#include "kernels/outer_product.hpp"
#include "models/layers/recorded.hpp"

namespace lockstep::models {

namespace {

// The limits where oneDNN may be the faster one. It needs a few microseconds more to begin, and from 16 rows on it
// packs the weight of a forward after all, which pays when there are many rows to come.
constexpr std::int64_t kMaxRowsOfUnpackedForward = 15;
constexpr std::int64_t kFewestRowsOfPackedForward = 128;
constexpr std::int64_t kFewestRowsOfInputGradient = 64;
constexpr std::int64_t kLargeWeight = 128 * 1024;  // elements
constexpr std::int64_t kMaxShallowInputs = 128;
constexpr std::int64_t kGrainOfDotProducts = 64;  // outputs: below them a second thread costs more than it saves

using kernels::Kernel;

bool is_faster_forward(std::int64_t rows, const at::Tensor& weight) {
  if (rows >= kFewestRowsOfPackedForward) {
    return kernels::is_used(weight.size(1) <= kMaxShallowInputs ? Kernel::shallow_linear : Kernel::linear);
  }
  return rows <= kMaxRowsOfUnpackedForward && weight.numel() >= kLargeWeight && kernels::is_used(Kernel::few_rows);
}

bool is_faster_input_gradient(std::int64_t rows, const at::Tensor& weight) {
  if (rows >= kFewestRowsOfInputGradient) return kernels::is_used(Kernel::linear_gradient);
  return weight.numel() >= kLargeWeight && kernels::is_used(Kernel::few_rows);
}

bool is_for_dot_products(std::int64_t rows, const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  return rows <= kernels::kMaxDotRows && weight.numel() >= kLargeWeight && kernels::is_used(Kernel::dot_products) &&
         input.is_contiguous() && weight.is_contiguous() &&
         (!bias.defined() || (bias.scalar_type() == at::kFloat && bias.is_contiguous()));
}

at::Tensor dot_products(std::int64_t rows, const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  std::vector<std::int64_t> sizes = input.sizes().vec();
  sizes.back() = weight.size(0);
  at::Tensor result = at::empty(sizes, input.options());
  const kernels::DotProducts products{.input = input.const_data_ptr<float>(),
                                      .weight = weight.const_data_ptr<float>(),
                                      .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
                                      .rows = rows,
                                      .inputs = weight.size(1),
                                      .outputs = weight.size(0)};
  const KernelRecord record("lockstep::dot_products", 2 * rows * weight.numel());
  at::parallel_for(0, products.outputs, kGrainOfDotProducts, [&](std::int64_t begin, std::int64_t end) {
    kernels::write_dot_products(products, begin, end, result.mutable_data_ptr<float>());
  });
  return result;
}

bool is_plain(const at::Tensor& tensor) {
  static const bool has_one_dnn = at::hasMKLDNN();
  return has_one_dnn && tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.numel() > 0;
}

}  // namespace

at::Tensor linear_of_one_dnn(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                             const char* after) {
  using Scalars = c10::List<std::optional<at::Scalar>>;
  using Function = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, std::string_view,
                              Scalars, std::optional<std::string_view>);
  static const auto function =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "").typed<Function>();
  static const Scalars none;
  const auto some_bias = bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt;
  return function.call(input, weight, some_bias, after, none, /*algorithm=*/"none");
}

at::Tensor linear_gelu_output(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  const bool is_plain_forward = !at::GradMode::is_enabled() && !at::autocast::is_autocast_enabled(at::kCPU) &&
                                is_plain(input) && is_plain(weight) && input.size(-1) == weight.size(1);
  if (!is_plain_forward || input.numel() < kFewestRowsOfPackedForward * weight.size(1)) return {};
  if (!kernels::is_used(Kernel::linear_gelu)) return {};
  return linear_of_one_dnn(input, weight, bias, "gelu");
}

at::Tensor linear_output(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  // LibTorch has more to say of shapes that do not fit.
  const bool fits = input.dim() > 0 && weight.dim() == 2 && input.size(-1) == weight.size(1);
  if (!fits || !is_plain(input) || !is_plain(weight)) return at::linear(input, weight, bias);
  const std::int64_t rows = input.numel() / weight.size(1);
  if (is_for_dot_products(rows, input, weight, bias)) return dot_products(rows, input, weight, bias);
  if (!is_faster_forward(rows, weight)) return at::linear(input, weight, bias);
  return linear_of_one_dnn(input, weight, bias);
}

at::Tensor linear_input_gradient(const at::Tensor& gradient, const at::Tensor& weight) {
  if (!is_plain(gradient) || !is_plain(weight)) return gradient.mm(weight);
  if (!is_faster_input_gradient(gradient.size(0), weight)) return gradient.mm(weight);
  return linear_of_one_dnn(gradient, weight.t(), {});
}

void linear_weight_gradient(const at::Tensor& gradient, const at::Tensor& input, at::Tensor target) {
  const std::int64_t samples = gradient.size(0);
  const bool is_outer_product = kernels::is_used(kernels::Kernel::outer_product) && samples <= kernels::kMaxSamples &&
                                is_plain(gradient) && is_plain(input) && gradient.is_contiguous() &&
                                input.is_contiguous() && target.is_contiguous();
  if (!is_outer_product) {
    at::mm_out(target, gradient.t(), input);
    return;
  }
  const kernels::OuterProduct product{.left = gradient.const_data_ptr<float>(),
                                      .right = input.const_data_ptr<float>(),
                                      .samples = samples,
                                      .rows = gradient.size(1),
                                      .columns = input.size(1)};
  const std::vector<float> panels = kernels::outer_product_panels(product);
  at::parallel_for(0, product.rows, kernels::outer_product_grain(product), [&](std::int64_t begin, std::int64_t end) {
    kernels::write_outer_product(product, panels, begin, end, target.mutable_data_ptr<float>());
  });
}

std::optional<at::ScalarType> rounding_of_products(const at::Tensor& factor, kernels::Kernel kernel) {
  if (!kernels::is_used(kernel) || !factor.is_cpu() || !at::autocast::is_autocast_enabled(at::kCPU)) {
    return std::nullopt;
  }
  const at::ScalarType type = at::autocast::get_autocast_dtype(at::kCPU);
  // A loss scale of fp16 relies on gradients that overflow as they do elsewhere.
  const bool is_rounded = type == at::kBFloat16 && (factor.scalar_type() == at::kFloat || factor.scalar_type() == type);
  return is_rounded ? std::optional(type) : std::nullopt;
}

at::Tensor as_float(const at::Tensor& parameter) {
  return parameter.defined() && parameter.scalar_type() == at::kBFloat16 ? parameter.to(at::kFloat) : parameter;
}

at::Tensor rounded_factor(const at::Tensor& tensor, at::ScalarType type) { return tensor.to(type).to(at::kFloat); }

at::Tensor rounded_weight(const at::Tensor& weight, at::ScalarType type) {
  const torch::NoGradGuard no_grad;
  return rounded_factor(weight, type);
}

}  // namespace lockstep::models
