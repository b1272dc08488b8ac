// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <memory>
#include <vector>

namespace lockstep::ckpt {

/// A flat array that holds `values`.
template <class Value>
checkpoints::Array array_of(DType dtype, std::vector<Value> values) {
  const auto kept = std::make_shared<std::vector<Value>>(std::move(values));
  const auto bytes = std::as_bytes(std::span(*kept));
  return {.dtype = dtype,
          .shape = {static_cast<std::int64_t>(bytes.size() / size_of(dtype))},
          .bytes = bytes,
          .owner = kept};
}

inline checkpoints::Array floats(std::vector<float> values) { return array_of(DType::float32, std::move(values)); }

}  // namespace lockstep::ckpt
