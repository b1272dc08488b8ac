// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

// Tensors as arrays of a checkpoint, and back.
namespace lockstep::engine {

/// The tensor's values in row-major order; borrows its memory where that is row-major already and on the CPU.
/// @param what  names it in messages
checkpoints::Array array_of(const at::Tensor& tensor, const std::string& what);

/// A tensor that borrows the array's bytes, and must not be written to.
at::Tensor tensor_over(const checkpoints::Array& array);

template <class T>
checkpoints::Array array_of(std::vector<T> values, DType dtype) {
  const auto kept = std::make_shared<std::vector<T>>(std::move(values));
  return {.dtype = dtype,
          .shape = {static_cast<std::int64_t>(kept->size())},
          .bytes = std::as_bytes(std::span(*kept)),
          .owner = kept};
}

}  // namespace lockstep::engine
