// SPDX-License-Identifier: BSD-3-Clause
// Functions of LibTorch that differ between the supported versions.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <torch/version.h>

#include <string>

namespace lockstep {

/// The type of the gradient of a leaf tensor. Before LibTorch 2.10 it is always that of the tensor.
template <class Tensor>
at::ScalarType gradient_type(const Tensor& tensor) {
  if constexpr (requires { tensor.grad_dtype(); }) {
    return tensor.grad_dtype().value_or(tensor.scalar_type());
  } else {
    return tensor.scalar_type();
  }
}

/// Sets how GPUs compute an operation on float32.
/// @param operation  "matmul", "conv" or "rnn"
/// @param precision  "ieee" or "tf32"
inline void set_cuda_float32_precision(const char* operation, const char* precision) {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 10
  at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, at::str2op(operation),
                                          at::str2precision(precision));
#else
  at::globalContext().setFloat32Precision("cuda", operation, precision);
#endif
}

/// @return  as set_cuda_float32_precision was given it
inline std::string cuda_float32_precision(const char* operation) {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 10
  return at::precision2str(at::globalContext().float32Precision(at::Float32Backend::CUDA, at::str2op(operation)));
#else
  return at::globalContext().float32Precision("cuda", operation);
#endif
}

}  // namespace lockstep
