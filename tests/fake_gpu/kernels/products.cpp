// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/kernels/products.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "fake_gpu/kernels/settings.hpp"

namespace lockstep::fake_gpu {

namespace {

constexpr std::array kProducts = {"aten::mm",
                                  "aten::addmm",
                                  "aten::_addmm",
                                  "aten::addmv",
                                  "aten::bmm",
                                  "aten::baddbmm",
                                  "aten::addbmm",
                                  "aten::dot",
                                  "aten::vdot",
                                  "aten::convolution",
                                  "aten::cudnn_convolution",
                                  "aten::_conv_depthwise",
                                  "aten::conv_depthwise",
                                  "aten::slow_conv",
                                  "aten::_slow_conv"};

bool is_16bit(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

at::ScalarType type_of_16bit(const Stack& stack) {
  at::ScalarType type = at::kHalf;
  visit_tensors(stack, [&](const at::Tensor& tensor) {
    if (is_16bit(tensor)) type = tensor.scalar_type();
  });
  return type;
}

}  // namespace

bool adds_in_float(const std::string& name) {
  return kernel_settings().adds_16bit_in_float &&
         std::any_of(kProducts.begin(), kProducts.end(),
                     [&](const char* prefix) { return name.rfind(prefix, 0) == 0; });
}

bool has_16bit_tensor(const Stack& stack) {
  bool has_one = false;
  visit_tensors(stack, [&](const at::Tensor& tensor) { has_one = has_one || is_16bit(tensor); });
  return has_one;
}

void compute_in_float(const Facts& facts, Stack& stack, void (*kernel)(const Facts&, Stack&)) {
  const at::ScalarType type = type_of_16bit(stack);
  std::vector<std::pair<at::Tensor, at::Tensor>> written;
  for (std::size_t i = 0; i < facts.arguments.size(); ++i) {
    stack[i] = with_tensors(stack[i], [&](const at::Tensor& tensor) {
      if (!is_16bit(tensor)) return tensor;
      at::Tensor wide = tensor.to(at::kFloat);
      if (facts.arguments[i].is_written) written.emplace_back(tensor, wide);
      return wide;
    });
  }
  kernel(facts, stack);
  for (const auto& [narrow, wide] : written) {
    if (narrow.sizes() != wide.sizes()) narrow.resize_(wide.sizes());
    narrow.copy_(wide);
  }
  for (IValue& result : stack) {
    result = with_tensors(result, [&](const at::Tensor& tensor) {
      return tensor.scalar_type() == at::kFloat ? tensor.to(type) : tensor;
    });
  }
}

}  // namespace lockstep::fake_gpu
