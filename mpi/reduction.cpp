// SPDX-License-Identifier: BSD-3-Clause
#include "reduction.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "chunks.hpp"

namespace lockstep::mpi {

namespace {

constexpr std::size_t kBlock = 4096;  // elements: the running result stays in the first-level cache

template <class T>
T load(const std::byte* from, std::size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {  // wraps around instead of being undefined
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
      return a + b;
    }
  }
};

struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};

struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

template <class T, class Combine>
void reduce_block(std::span<const std::byte* const> sources, std::span<std::byte* const> targets, std::size_t begin,
                  std::size_t count, T factor) {
  alignas(64) std::array<T, kBlock> result;
  const std::size_t offset = begin * sizeof(T);
  std::memcpy(result.data(), sources[0] + offset, count * sizeof(T));
  for (const std::byte* source : sources.subspan(1)) {
    const std::byte* const values = source + offset;
    for (std::size_t i = 0; i < count; ++i) result[i] = Combine()(result[i], load<T>(values, i));
  }
  if (factor != T{1}) {
    for (std::size_t i = 0; i < count; ++i) result[i] *= factor;
  }
  for (std::byte* target : targets) std::memcpy(target + offset, result.data(), count * sizeof(T));
}

template <class T, class Combine>
void reduce_all(std::span<const std::byte* const> sources, std::span<std::byte* const> targets, std::size_t count,
                T factor) {
  for_each_chunk(count, kBlock, [&](std::size_t begin, std::size_t length) {
    reduce_block<T, Combine>(sources, targets, begin, length, factor);
  });
}

template <class T>
void reduce_as(std::span<const std::byte* const> sources, std::span<std::byte* const> targets, std::size_t count,
               ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return reduce_all<T, Sum>(sources, targets, count, T{1});
    case ReduceOp::average:
      return reduce_all<T, Sum>(sources, targets, count, static_cast<T>(T{1} / static_cast<T>(sources.size())));
    case ReduceOp::min:
      return reduce_all<T, Min>(sources, targets, count, T{1});
    case ReduceOp::max:
      return reduce_all<T, Max>(sources, targets, count, T{1});
  }
}

}  // namespace

void require_reducible(DType dtype, ReduceOp op) {
  const bool is_real = dtype == DType::float32 || dtype == DType::float64;
  const bool is_integer = dtype == DType::int32 || dtype == DType::int64;
  if (is_real || (is_integer && op != ReduceOp::average)) return;
  const std::string what = is_integer ? "averaged" : "reduced";
  throw std::logic_error("comm: " + std::string(name_of(dtype)) + " values cannot be " + what);
}

void reduce(std::span<const std::byte* const> sources, std::span<std::byte* const> targets, std::size_t count,
            DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::float32:
      return reduce_as<float>(sources, targets, count, op);
    case DType::float64:
      return reduce_as<double>(sources, targets, count, op);
    case DType::int32:
      return reduce_as<std::int32_t>(sources, targets, count, op);
    case DType::int64:
      return reduce_as<std::int64_t>(sources, targets, count, op);
    default:
      require_reducible(dtype, op);
  }
}

}  // namespace lockstep::mpi
