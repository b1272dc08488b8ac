// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/engine/stateful.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::engine {

/// A row of numbers, which the array owns.
template <class T>
checkpoints::Array array_of(std::vector<T> values, DType dtype) {
  const auto kept = std::make_shared<std::vector<T>>(std::move(values));
  return {.dtype = dtype,
          .shape = {static_cast<std::int64_t>(kept->size())},
          .bytes = std::as_bytes(std::span(*kept)),
          .owner = kept};
}

}  // namespace lockstep::engine
