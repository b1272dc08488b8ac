// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/kernels/foreach.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::fake_gpu {

namespace {

using Tensors = std::vector<at::Tensor>;

std::vector<Tensors> lists_of(const Stack& arguments) {
  std::vector<Tensors> lists;
  for (const IValue& argument : arguments) {
    if (argument.isTensorList()) lists.push_back(argument.toTensorVector());
  }
  return lists;
}

bool is_dense_on(const at::Tensor& tensor, at::Device device) {
  return tensor.device() == device && tensor.layout() == at::kStrided && tensor.is_non_overlapping_and_dense();
}

bool has_same_strides(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  for (std::int64_t i = 0; i < a.dim(); ++i) {
    if (a.size(i) != 1 && a.stride(i) != b.stride(i)) return false;
  }
  return true;
}

/// A kernel converts no number that is in the memory of the device.
bool needs_conversion(const IValue& argument, const at::Tensor& first) {
  if (!argument.isTensor() || !argument.toTensor().defined()) return false;
  const at::Tensor& number = argument.toTensor();
  return number.is_cuda() && number.dtype() != first.dtype();
}

/// There are kernels for three norms.
bool is_other_norm(const Facts& facts, const Stack& arguments) {
  if (facts.name != "aten::_foreach_norm.Scalar") return false;
  const double order = arguments[1].toScalar().toDouble();
  return order != 1 && order != 2 && !std::isinf(order);
}

/// A number of a higher kind changes the type of the result: an integer plus 0.5.
bool changes_type(const IValue& argument, const at::Tensor& first) {
  return argument.isDouble() && at::isIntegralType(first.scalar_type(), /*includeBool=*/true);
}

}  // namespace

bool is_one_kernel(const Facts& facts, const Stack& arguments) {
  const std::vector<Tensors> lists = lists_of(arguments);
  if (lists.empty() || lists[0].empty()) return true;
  const at::Tensor& first = lists[0][0];
  const bool may_convert = facts.name == "aten::_foreach_copy_";
  for (const Tensors& list : lists) {
    if (list.size() != lists[0].size()) return true;  // the kernel's own message
    for (std::size_t i = 0; i < list.size(); ++i) {
      const at::Tensor& reference = may_convert ? list[0] : first;
      if (!is_dense_on(list[i], first.device()) || list[i].dtype() != reference.dtype()) return false;
      if (!has_same_strides(list[i], lists[0][i])) return false;
    }
  }
  return !is_other_norm(facts, arguments) &&
         std::none_of(arguments.begin(), arguments.end(), [&](const IValue& argument) {
           return changes_type(argument, first) || needs_conversion(argument, first);
         });
}

void check_fused(const Facts& facts, const Stack& arguments) {
  Stack lists;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool is_of_numbers = facts.handle.schema().arguments()[i].name() == "state_steps";
    if (arguments[i].isTensorList() && !is_of_numbers) lists.push_back(arguments[i]);
    if (!is_of_numbers && !arguments[i].isTensor()) continue;
    visit_tensors(arguments[i], [&](const at::Tensor& number) {
      TORCH_CHECK(number.scalar_type() == at::kFloat, facts.name, ": numbers must be float32");
    });
  }
  TORCH_CHECK(is_one_kernel(facts, lists), facts.name,
              ": parameters, gradients and states must have the same type, sizes and strides, without gaps");
}

}  // namespace lockstep::fake_gpu
