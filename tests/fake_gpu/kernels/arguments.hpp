// SPDX-License-Identifier: BSD-3-Clause
// Arguments and results of operators are values of many types; these functions reach the tensors in them.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <optional>
#include <utility>

namespace lockstep::fake_gpu {

using c10::IValue;
using torch::jit::Stack;

/// Calls `visit(tensor)` for each defined tensor of a value: a tensor, or a list of tensors or optional tensors.
template <class Visit>
void visit_tensors(const IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const IValue& element : value.toListRef()) visit_tensors(element, visit);
  }
}

template <class Visit>
void visit_tensors(const Stack& values, Visit&& visit) {
  for (const IValue& value : values) visit_tensors(value, visit);
}

/// The value with `change(tensor)` in place of each defined tensor.
template <class Change>
IValue with_tensors(const IValue& value, Change&& change) {
  if (value.isTensor()) return value.toTensor().defined() ? IValue(change(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const IValue& element : value.toListRef()) list.push_back(with_tensors(element, change).toTensor());
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const IValue& element : value.toListRef()) {
      list.push_back(with_tensors(element, change).template to<std::optional<at::Tensor>>());
    }
    return list;
  }
  return value;
}

/// An argument for the CPU: `change(tensor)` in place of each tensor, and the CPU in place of a device.
template <class Change>
IValue for_cpu(const IValue& argument, Change&& change) {
  return argument.isDevice() ? IValue(at::Device(at::kCPU)) : with_tensors(argument, change);
}

}  // namespace lockstep::fake_gpu
