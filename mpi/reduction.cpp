// SPDX-License-Identifier: BSD-3-Clause
#include "reduction.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

// Everything below `run` must be inlined into the function that names the processor.
#define LOCKSTEP_INLINE [[gnu::always_inline]] inline

namespace lockstep::mpi {

namespace {

struct Work {
  std::span<const std::byte* const> sources;
  std::span<std::byte* const> targets;
  std::size_t count;
  DType dtype;
  ReduceOp op;
};

/// Sums of integers wrap around instead of being undefined.
template <class T>
struct Summand {
  using Type = T;
};
template <>
struct Summand<std::int32_t> {
  using Type = std::uint32_t;
};
template <>
struct Summand<std::int64_t> {
  using Type = std::uint64_t;
};

// Combine a number, or a vector of numbers, into a running result.
struct Sum {
  template <class V>
  LOCKSTEP_INLINE static void combine(V& result, const V& value) {
    result += value;
  }
};
struct Min {
  template <class V>
  LOCKSTEP_INLINE static void combine(V& result, const V& value) {
    result = result < value ? result : value;
  }
};
struct Max {
  template <class V>
  LOCKSTEP_INLINE static void combine(V& result, const V& value) {
    result = result > value ? result : value;
  }
};

/// Reduces kVectors values of type V, numbers or vectors, that begin at byte `offset`. They stay in registers: every
/// source is read once, every target written once, and nothing else touches memory.
template <class V, std::size_t kVectors, class Combine, class T>
LOCKSTEP_INLINE void reduce_tile(const Work& work, std::size_t offset, T factor) {
  using Unaligned [[gnu::aligned(1), gnu::may_alias]] = V;
  V result[kVectors];
  const auto* first = reinterpret_cast<const Unaligned*>(work.sources[0] + offset);
  for (std::size_t i = 0; i < kVectors; ++i) result[i] = first[i];
  for (std::size_t source = 1; source < work.sources.size(); ++source) {
    const auto* values = reinterpret_cast<const Unaligned*>(work.sources[source] + offset);
    for (std::size_t i = 0; i < kVectors; ++i) Combine::combine(result[i], V(values[i]));
  }
  if (factor != T{1}) {
    for (std::size_t i = 0; i < kVectors; ++i) result[i] *= factor;
  }
  for (std::byte* target : work.targets) {
    auto* values = reinterpret_cast<Unaligned*>(target + offset);
    for (std::size_t i = 0; i < kVectors; ++i) values[i] = result[i];
  }
}

template <std::size_t kWidth, class Combine, class T>
LOCKSTEP_INLINE void reduce_all(const Work& work, T factor) {
  using Vector [[gnu::vector_size(kWidth)]] = T;
  constexpr std::size_t kVectors = 4;
  constexpr std::size_t kTileBytes = kVectors * kWidth;
  const std::size_t bytes = work.count * sizeof(T);
  std::size_t offset = 0;
  for (; offset + kTileBytes <= bytes; offset += kTileBytes) {
    reduce_tile<Vector, kVectors, Combine, T>(work, offset, factor);
  }
  for (; offset < bytes; offset += sizeof(T)) reduce_tile<T, 1, Combine, T>(work, offset, factor);
}

template <std::size_t kWidth, class T>
LOCKSTEP_INLINE void reduce_type(const Work& work) {
  using Number = typename Summand<T>::Type;
  switch (work.op) {
    case ReduceOp::sum:
      return reduce_all<kWidth, Sum>(work, Number{1});
    case ReduceOp::average:
      return reduce_all<kWidth, Sum>(work, static_cast<Number>(Number{1} / static_cast<Number>(work.sources.size())));
    case ReduceOp::min:
      return reduce_all<kWidth, Min>(work, T{1});
    case ReduceOp::max:
      return reduce_all<kWidth, Max>(work, T{1});
  }
}

template <std::size_t kWidth>
LOCKSTEP_INLINE void run(const Work& work) {
  switch (work.dtype) {
    case DType::float32:
      return reduce_type<kWidth, float>(work);
    case DType::float64:
      return reduce_type<kWidth, double>(work);
    case DType::int32:
      return reduce_type<kWidth, std::int32_t>(work);
    case DType::int64:
      return reduce_type<kWidth, std::int64_t>(work);
    default:
      return;
  }
}

#if defined(__x86_64__)
[[gnu::target("avx512f")]] void run_avx512(const Work& work) { run<64>(work); }
[[gnu::target("avx2")]] void run_avx2(const Work& work) { run<32>(work); }
#else
void run_avx512(const Work& work) { run<16>(work); }
void run_avx2(const Work& work) { run<16>(work); }
#endif
void run_sse(const Work& work) { run<16>(work); }

}  // namespace

void require_reducible(DType dtype, ReduceOp op) {
  const bool is_real = dtype == DType::float32 || dtype == DType::float64;
  const bool is_integer = dtype == DType::int32 || dtype == DType::int64;
  if (is_real || (is_integer && op != ReduceOp::average)) return;
  const std::string what = is_integer ? "averaged" : "reduced";
  throw std::logic_error("comm: " + std::string(name_of(dtype)) + " values cannot be " + what);
}

VectorWidth widest_vectors() {
#if defined(__x86_64__)
  static const VectorWidth width = __builtin_cpu_supports("avx512f") ? VectorWidth::avx512
                                   : __builtin_cpu_supports("avx2")  ? VectorWidth::avx2
                                                                     : VectorWidth::sse;
  return width;
#else
  return VectorWidth::sse;
#endif
}

void reduce(std::span<const std::byte* const> sources, std::span<std::byte* const> targets, std::size_t count,
            DType dtype, ReduceOp op, VectorWidth width) {
  require_reducible(dtype, op);
  const Work work{.sources = sources, .targets = targets, .count = count, .dtype = dtype, .op = op};
  switch (width) {
    case VectorWidth::avx512:
      return run_avx512(work);
    case VectorWidth::avx2:
      return run_avx2(work);
    case VectorWidth::sse:
      return run_sse(work);
  }
}

}  // namespace lockstep::mpi
