// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/reduction.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/numbers/dtype.hpp"
#include "core/numbers/processor_level.hpp"

namespace lockstep::kernels {

namespace {

struct Work {
  std::span<const std::byte* const> sources;
  std::span<std::byte* const> targets;
  std::size_t count;
  ElementReduction reduction;
};

/// Sums and products of integers wrap around instead of being undefined.
template <class T>
struct Operand {
  using Type = T;
};
template <>
struct Operand<std::int32_t> {
  using Type = std::uint32_t;
};
template <>
struct Operand<std::int64_t> {
  using Type = std::uint64_t;
};

// Combine a number, or a vector of numbers, into a running result.
struct Sum {
  template <class V>
  LOCKSTEP_INLINE static void combine(V& result, const V& value) {
    result = static_cast<V>(result + value);
  }
};
struct Product {
  template <class V>
  LOCKSTEP_INLINE static void combine(V& result, const V& value) {
    result = static_cast<V>(result * value);
  }
};
struct Min {  // NaN if one is
  template <class V>
  LOCKSTEP_INLINE static void combine(V& result, const V& value) {
    result = (result < value) | (result != result) ? result : value;
  }
};
struct Max {
  template <class V>
  LOCKSTEP_INLINE static void combine(V& result, const V& value) {
    result = (result > value) | (result != result) ? result : value;
  }
};

template <class V, std::size_t kVectors>
LOCKSTEP_INLINE void read(const std::byte* from, V (&values)[kVectors]) {
  using Unaligned [[gnu::aligned(1), gnu::may_alias]] = V;
  for (std::size_t i = 0; i < kVectors; ++i) values[i] = reinterpret_cast<const Unaligned*>(from)[i];
}

template <class V, std::size_t kVectors>
LOCKSTEP_INLINE void write(const V (&values)[kVectors], std::byte* target) {
  using Unaligned [[gnu::aligned(1), gnu::may_alias]] = V;
  for (std::size_t i = 0; i < kVectors; ++i) reinterpret_cast<Unaligned*>(target)[i] = values[i];
}

// Combine kVectors values of type V, numbers or vectors, that begin at byte `offset` of each source.
template <class Combine>
struct InOrder {
  template <class V, std::size_t kVectors>
  LOCKSTEP_INLINE static void combine(const Work& work, std::size_t offset, V (&result)[kVectors]) {
    read(work.sources[0] + offset, result);
    for (std::size_t source = 1; source < work.sources.size(); ++source) {
      V values[kVectors];
      read(work.sources[source] + offset, values);
      for (std::size_t i = 0; i < kVectors; ++i) Combine::combine(result[i], values[i]);
    }
  }
};
struct ByTree {
  static constexpr std::size_t kMaxDepth = 32;  // lanes are counted by an int
  template <class V, std::size_t kVectors>
  LOCKSTEP_INLINE static void combine(const Work& work, std::size_t offset, V (&top)[kVectors]) {
    V below[kMaxDepth][kVectors];
    std::size_t depth = 0;
    read(work.sources[0] + offset, top);
    for (std::size_t source = 1; source < work.sources.size(); ++source) {
      for (std::size_t i = 0; i < kVectors; ++i) below[depth][i] = top[i];
      ++depth;
      read(work.sources[source] + offset, top);
      for (std::uint8_t merge = 0; merge < work.reduction.merges[source]; ++merge) {
        --depth;
        for (std::size_t i = 0; i < kVectors; ++i) top[i] = below[depth][i] + top[i];
      }
    }
  }
};

/// The values stay in registers, all of them in order: every source is read once, every target written once.
template <class V, std::size_t kVectors, class Order, class T>
LOCKSTEP_INLINE void reduce_tile(const Work& work, std::size_t offset, T factor) {
  V result[kVectors];
  Order::combine(work, offset, result);
  if (factor != T{1}) {
    for (std::size_t i = 0; i < kVectors; ++i) result[i] *= factor;
  }
  for (std::byte* target : work.targets) write(result, target + offset);
}

template <std::size_t kWidth, class Order, class T>
LOCKSTEP_INLINE void reduce_all(const Work& work, T factor) {
  using Vector [[gnu::vector_size(kWidth)]] = T;
  constexpr std::size_t kVectors = 4;
  constexpr std::size_t kTileBytes = kVectors * kWidth;
  const std::size_t bytes = work.count * sizeof(T);
  std::size_t offset = 0;
  for (; offset + kTileBytes <= bytes; offset += kTileBytes) {
    reduce_tile<Vector, kVectors, Order, T>(work, offset, factor);
  }
  for (; offset < bytes; offset += sizeof(T)) reduce_tile<T, 1, Order, T>(work, offset, factor);
}

template <std::size_t kWidth, class T>
LOCKSTEP_INLINE void sum_all(const Work& work, T factor) {
  if constexpr (std::is_floating_point_v<T>) {  // integers have the same sum in any order
    if (!work.reduction.merges.empty()) return reduce_all<kWidth, ByTree>(work, factor);
  }
  reduce_all<kWidth, InOrder<Sum>>(work, factor);
}

template <std::size_t kWidth, class T>
LOCKSTEP_INLINE void reduce_type(const Work& work) {
  using Number = typename Operand<T>::Type;
  switch (work.reduction.by) {
    case Combination::sum:
      return sum_all<kWidth>(work, static_cast<Number>(Number{1} / static_cast<Number>(work.reduction.divisor)));
    case Combination::product:
      return reduce_all<kWidth, InOrder<Product>>(work, Number{1});
    case Combination::min:
      return reduce_all<kWidth, InOrder<Min>>(work, T{1});
    case Combination::max:
      return reduce_all<kWidth, InOrder<Max>>(work, T{1});
  }
}

template <std::size_t kWidth>
LOCKSTEP_INLINE void run_type(const Work& work) {
  switch (work.reduction.dtype) {
    case DType::float32:
      return reduce_type<kWidth, float>(work);
    case DType::float64:
      return reduce_type<kWidth, double>(work);
    case DType::int32:
      return reduce_type<kWidth, std::int32_t>(work);
    case DType::int64:
      return reduce_type<kWidth, std::int64_t>(work);
    case DType::uint8:
    case DType::boolean:
      return reduce_type<kWidth, std::uint8_t>(work);
    default:
      return;
  }
}

void run(const Work& work) { at_level<run_type<16>, run_type<32>, run_type<64>>(work); }

struct alignas(64) Line {
  std::array<float, 16> values;
};

/// Combines 16-bit floats as float32: a block of every source is widened, the blocks are combined, and the result is
/// rounded, all in the first-level cache.
void run_widened(const Work& work) {
  constexpr std::size_t kCacheElements = 4096;
  constexpr std::size_t kMinBlock = 64;
  const ElementReduction& reduction = work.reduction;
  const HalfFormat format = half_format(reduction.dtype);
  const std::size_t rows = work.sources.size() + 1;
  const std::size_t block = std::max(kCacheElements / rows / kMinBlock * kMinBlock, kMinBlock);
  thread_local std::vector<Line> lines;
  thread_local std::vector<const std::byte*> widened_sources;
  lines.resize(std::max(lines.size(), rows * block / std::tuple_size_v<decltype(Line::values)>));
  widened_sources.resize(work.sources.size());
  float* const result = lines.front().values.data();
  auto* const target = reinterpret_cast<std::byte*>(result);
  Work widened{.sources = widened_sources, .targets = std::span(&target, 1), .count = 0, .reduction = reduction};
  widened.reduction.dtype = DType::float32;
  for (std::size_t begin = 0; begin < work.count; begin += block) {
    const std::size_t count = std::min(block, work.count - begin);
    for (std::size_t i = 0; i < work.sources.size(); ++i) {
      if (i < reduction.partial_sources) {
        widened_sources[i] = work.sources[i] + begin * sizeof(float);
        continue;
      }
      float* const row = result + (i + 1) * block;
      format.widen(work.sources[i] + begin * kHalfBytes, row, count);
      widened_sources[i] = reinterpret_cast<const std::byte*>(row);
    }
    widened.count = count;
    run(widened);
    for (std::byte* const place : work.targets) {
      if (reduction.is_partial) {
        std::memcpy(place + begin * sizeof(float), result, count * sizeof(float));
      } else {
        format.narrow(result, place + begin * kHalfBytes, count);
      }
    }
  }
}

}  // namespace

void reduce(std::span<const std::byte* const> sources, std::span<std::byte* const> targets, std::size_t count,
            const ElementReduction& reduction) {
  const Work work{.sources = sources, .targets = targets, .count = count, .reduction = reduction};
  if (size_of(reduction.dtype) == kHalfBytes) return run_widened(work);
  run(work);
}

}  // namespace lockstep::kernels
