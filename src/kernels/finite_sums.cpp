// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/finite_sums.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/numbers/processor_level.hpp"

namespace lockstep::kernels {

namespace {

constexpr std::size_t kLanes = 8;
using Lanes [[gnu::vector_size(kLanes * sizeof(double))]] = double;
using LaneCounts [[gnu::vector_size(kLanes * sizeof(double))]] = std::int64_t;

/// Sums in lanes, so that the processor's widest vectors give the same bits as no vectors do.
/// @param Load  sets lanes to the elements from `i` on
template <class Load>
LOCKSTEP_INLINE FiniteSums sum_up(const std::byte* bytes, std::size_t count, std::size_t width, const Load& load) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Lanes min = Lanes{} + kInfinity;
  Lanes max = Lanes{} - kInfinity;
  Lanes sum = {};
  Lanes square_sum = {};
  LaneCounts finite = {};
  LaneCounts zeros = {};
  const auto take = [&](const Lanes& value) __attribute__((always_inline)) {
    const LaneCounts is_finite = value - value == 0;  // -1 where it is so
    const Lanes counted = is_finite ? value : Lanes{};
    const Lanes low = is_finite ? value : Lanes{} + kInfinity;
    const Lanes high = is_finite ? value : Lanes{} - kInfinity;
    min = low < min ? low : min;
    max = high > max ? high : max;
    sum += counted;
    square_sum += counted * counted;
    finite -= is_finite;
    zeros -= value == 0;
  };
  Lanes value;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    load(bytes + i * width, value);
    take(value);
  }
  if (i < count) {
    std::array<std::byte, kLanes * sizeof(double)> rest = {};
    std::memcpy(rest.data(), bytes + i * width, (count - i) * width);
    load(rest.data(), value);
    for (std::size_t lane = count - i; lane < kLanes; ++lane) value[lane] = std::nan("");  // counts as nothing here
    take(value);
  }
  FiniteSums part;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    part.count += static_cast<std::uint64_t>(finite[lane]);
    part.zeros += static_cast<std::uint64_t>(zeros[lane]);
    part.min = std::min(part.min, min[lane]);
    part.max = std::max(part.max, max[lane]);
    part.sum += sum[lane];
    part.square_sum += square_sum[lane];
  }
  return part;
}

template <class Stored>
LOCKSTEP_INLINE Stored load(const std::byte* bytes, std::size_t i) {
  Stored value;
  std::memcpy(&value, bytes + i * sizeof(Stored), sizeof(Stored));
  return value;
}

template <class Stored>
LOCKSTEP_INLINE FiniteSums sum_plain(const std::byte* bytes, std::size_t count) {
  using Vector [[gnu::vector_size(kLanes * sizeof(Stored))]] = Stored;
  return sum_up(
      bytes, count, sizeof(Stored), [](const std::byte* source, Lanes& lanes) __attribute__((always_inline)) {
        Vector values;
        std::memcpy(&values, source, sizeof values);
        lanes = __builtin_convertvector(values, Lanes);
      });
}

LOCKSTEP_INLINE FiniteSums sum_bfloat16(const std::byte* bytes, std::size_t count) {
  using Halves [[gnu::vector_size(kLanes * sizeof(std::uint16_t))]] = std::uint16_t;
  using Words [[gnu::vector_size(kLanes * sizeof(std::uint32_t))]] = std::uint32_t;
  using Floats [[gnu::vector_size(kLanes * sizeof(float))]] = float;
  return sum_up(
      bytes, count, sizeof(std::uint16_t), [](const std::byte* source, Lanes& lanes) __attribute__((always_inline)) {
        Halves halves;
        std::memcpy(&halves, source, sizeof halves);
        const Words words = __builtin_convertvector(halves, Words) << 16;
        Floats floats;
        std::memcpy(&floats, &words, sizeof floats);
        lanes = __builtin_convertvector(floats, Lanes);
      });
}

FiniteSums sum_float16(const std::byte* bytes, std::size_t count) {
  return sum_up(
      bytes, count, sizeof(std::uint16_t), [](const std::byte* source, Lanes& lanes) __attribute__((always_inline)) {
        for (std::size_t lane = 0; lane < kLanes; ++lane)
          lanes[lane] = half_to_float(load<std::uint16_t>(source, lane));
      });
}

template <class Stored>
FiniteSums sum_integers(const std::byte* bytes, std::size_t count) {
  return sum_plain<Stored>(bytes, count);
}

}  // namespace

Summation summation_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::complex64:
      return {4, at_level<sum_plain<float>>};
    case DType::float64:
    case DType::complex128:
      return {8, at_level<sum_plain<double>>};
    case DType::float16:
      return {2, sum_float16};
    case DType::bfloat16:
      return {2, at_level<sum_bfloat16>};
    case DType::int8:
      return {1, sum_integers<std::int8_t>};
    case DType::int16:
      return {2, sum_integers<std::int16_t>};
    case DType::int32:
      return {4, sum_integers<std::int32_t>};
    case DType::int64:
      return {8, sum_integers<std::int64_t>};
    case DType::uint8:
    case DType::boolean:
      break;
  }
  return {1, sum_integers<std::uint8_t>};
}

}  // namespace lockstep::kernels
