// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/rounded_products.hpp"

#include <ATen/autocast_mode.h>
#include <torch/types.h>

#include "kernels/kernels.hpp"

namespace lockstep::models {

std::optional<at::ScalarType> rounding_of_products(const at::Tensor& factor) {
  if (!kernels::is_used(kernels::Kernel::rounded_products) || !factor.is_cpu() ||
      !at::autocast::is_autocast_enabled(at::kCPU)) {
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
