// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/kernels/foreach.hpp"

#include <algorithm>
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
  return std::none_of(arguments.begin(), arguments.end(),
                      [&](const IValue& argument) { return changes_type(argument, first); });
}

}  // namespace lockstep::fake_gpu
