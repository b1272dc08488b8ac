// SPDX-License-Identifier: BSD-3-Clause
#include "optim/update/tensor_stack.hpp"

#include <torch/types.h>

namespace lockstep::optim {

std::vector<std::vector<at::Tensor>> divided_for_stacks(const std::vector<at::Tensor>& tensors) {
  std::vector<std::vector<at::Tensor>> parts;
  std::int64_t elements = kStackElements;
  for (const at::Tensor& tensor : tensors) {
    if (elements >= kStackElements) {
      parts.emplace_back();
      elements = 0;
    }
    parts.back().push_back(tensor);
    elements += tensor.numel();
  }
  return parts;
}

TensorStack::TensorStack(const std::vector<at::Tensor>& like, at::ScalarType type) : first_rows_{0} {
  for (const at::Tensor& tensor : like) {
    first_rows_.push_back(first_rows_.back() + (tensor.numel() + kRowElements - 1) / kRowElements);
  }
  rows_ = at::empty({first_rows_.back(), kRowElements}, like.front().options().dtype(type).requires_grad(false));
  for (std::size_t i = 0; i < like.size(); ++i) {
    parts_.push_back(rows_.as_strided(like[i].sizes(), like[i].strides(), first_rows_[i] * kRowElements));
  }
}

TensorStack TensorStack::of(const std::vector<at::Tensor>& tensors, at::ScalarType type) {
  TensorStack stack(tensors, type);
  at::_foreach_copy_(stack.parts_, tensors);
  return stack;
}

at::Tensor TensorStack::rows_of(std::size_t first, std::size_t count) const {
  return rows_.narrow(0, first_rows_[first], first_rows_[first + count] - first_rows_[first]);
}

std::vector<at::Tensor> TensorStack::parts_of(const at::Tensor& rows, std::size_t count) const {
  std::vector<at::Tensor> parts;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t begin = rows.storage_offset() + first_rows_[i] * kRowElements;
    parts.push_back(rows.as_strided(parts_[i].sizes(), parts_[i].strides(), begin));
  }
  return parts;
}

at::Tensor TensorStack::by_row(const std::vector<at::Tensor>& values) const {
  std::vector<at::Tensor> repeated;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::vector<std::int64_t> sizes = values[i].sizes().vec();
    sizes.push_back(first_rows_[i + 1] - first_rows_[i]);
    repeated.push_back(values[i].unsqueeze(-1).expand(sizes));
  }
  return at::cat(repeated, -1).unsqueeze(-1);
}

}  // namespace lockstep::optim
