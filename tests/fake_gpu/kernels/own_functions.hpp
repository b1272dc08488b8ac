// SPDX-License-Identifier: BSD-3-Clause
// Operators that LibTorch has for CUDA only, or that it cannot compute for CPUs as needed here. A function has the
// arguments of the operator; one with random numbers whose operator takes no generator has one as its last argument.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <map>
#include <string>

namespace lockstep::fake_gpu {

using OwnFunctions = std::map<std::string, c10::KernelFunction>;

void add_cudnn_functions(OwnFunctions& rows);
void add_dropout_functions(OwnFunctions& rows);
void add_sync_batch_norm_functions(OwnFunctions& rows);

/// The function for an operator; null if it has none.
const c10::KernelFunction* own_function(const std::string& name);

/// A row of the table: any function of LibTorch's types.
template <class Function>
c10::KernelFunction boxable(Function* function) {
  return c10::KernelFunction::makeFromUnboxedRuntimeFunction(function);
}

}  // namespace lockstep::fake_gpu
