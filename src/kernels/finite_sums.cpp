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
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Vectors that fill a register of a level: g++ computes with longer vectors number by number.
template <std::size_t kLength>
struct LaneTypes {
  using Numbers [[gnu::vector_size(kLength * sizeof(double))]] = double;
  using Counts [[gnu::vector_size(kLength * sizeof(double))]] = std::int64_t;
  using Floats [[gnu::vector_size(kLength * sizeof(float))]] = float;
  using Words [[gnu::vector_size(kLength * sizeof(float))]] = std::uint32_t;
  using Halves [[gnu::vector_size(kLength * sizeof(float) / 2)]] = std::uint16_t;
};

template <class Numbers, class Counts>
struct Lanes {
  Numbers min = Numbers{} + kInfinity;
  Numbers max = Numbers{} - kInfinity;
  Numbers sum = {};
  Numbers square_sum = {};
  Counts finite = {};
  Counts zeros = {};

  LOCKSTEP_INLINE void take(const Numbers& value) {
    const Counts is_finite = value - value == 0;  // -1 where it is so
    const Numbers counted = is_finite ? value : Numbers{};
    const Numbers low = is_finite ? value : Numbers{} + kInfinity;
    const Numbers high = is_finite ? value : Numbers{} - kInfinity;
    min = low < min ? low : min;
    max = high > max ? high : max;
    sum += counted;
    square_sum += counted * counted;
    finite -= is_finite;
    zeros -= value == 0;
  }

  LOCKSTEP_INLINE void add_to(FiniteSums& all) const {
    for (std::size_t lane = 0; lane < sizeof(Numbers) / sizeof(double); ++lane) {
      all.count += static_cast<std::uint64_t>(finite[lane]);
      all.zeros += static_cast<std::uint64_t>(zeros[lane]);
      all.min = std::min(all.min, min[lane]);
      all.max = std::max(all.max, max[lane]);
      all.sum += sum[lane];
      all.square_sum += square_sum[lane];
    }
  }
};

/// Element i belongs to lane i % kLanes, so that all levels give the same bits.
/// @param load  sets a vector to the `kLength` elements from an address on
template <std::size_t kLength, class Load>
LOCKSTEP_INLINE FiniteSums sum_up(const std::byte* bytes, std::size_t count, std::size_t width, const Load& load) {
  using Numbers = typename LaneTypes<kLength>::Numbers;
  constexpr std::size_t kParts = kLanes / kLength;
  Lanes<Numbers, typename LaneTypes<kLength>::Counts> parts[kParts];
  Numbers value;
  const std::size_t whole = count - count % kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
#pragma GCC unroll 4
    for (std::size_t p = 0; p < kParts; ++p) {
      load(bytes + (i + p * kLength) * width, value);
      parts[p].take(value);
    }
  }
  if (whole < count) {
    std::array<std::byte, kLanes * sizeof(double)> rest = {};
    std::memcpy(rest.data(), bytes + whole * width, (count - whole) * width);
    for (std::size_t p = 0; p < kParts; ++p) {
      load(rest.data() + p * kLength * width, value);
      for (std::size_t lane = 0; lane < kLength; ++lane) {
        if (whole + p * kLength + lane >= count) value[lane] = std::nan("");  // counts as nothing
      }
      parts[p].take(value);
    }
  }
  FiniteSums sums;
  for (const auto& part : parts) part.add_to(sums);
  return sums;
}

template <std::size_t kLength, class Stored>
LOCKSTEP_INLINE FiniteSums sum_plain(const std::byte* bytes, std::size_t count) {
  using Vector [[gnu::vector_size(kLength * sizeof(Stored))]] = Stored;
  using Numbers = typename LaneTypes<kLength>::Numbers;
  return sum_up<kLength>(
      bytes, count, sizeof(Stored), [](const std::byte* source, Numbers& numbers) __attribute__((always_inline)) {
        Vector values;
        std::memcpy(&values, source, sizeof values);
        numbers = __builtin_convertvector(values, Numbers);
      });
}

template <std::size_t kLength>
LOCKSTEP_INLINE FiniteSums sum_bfloat16(const std::byte* bytes, std::size_t count) {
  using Types = LaneTypes<kLength>;
  using Numbers = typename Types::Numbers;
  return sum_up<kLength>(
      bytes, count, sizeof(std::uint16_t),
      [](const std::byte* source, Numbers& numbers) __attribute__((always_inline)) {
        typename Types::Halves halves;
        std::memcpy(&halves, source, sizeof halves);
        const auto words = __builtin_convertvector(halves, typename Types::Words) << 16;
        typename Types::Floats floats;
        std::memcpy(&floats, &words, sizeof floats);
        numbers = __builtin_convertvector(floats, Numbers);
      });
}

constexpr std::size_t kGeneric = 2;
constexpr std::size_t kAvx2 = 4;
constexpr std::size_t kAvx512 = 8;

FiniteSums sum_float16(const std::byte* bytes, std::size_t count) {
  using Numbers = LaneTypes<kGeneric>::Numbers;
  return sum_up<kGeneric>(
      bytes, count, sizeof(std::uint16_t),
      [](const std::byte* source, Numbers& numbers) __attribute__((always_inline)) {
        for (std::size_t lane = 0; lane < kGeneric; ++lane) {
          std::uint16_t half;
          std::memcpy(&half, source + lane * sizeof half, sizeof half);
          numbers[lane] = half_to_float(half);
        }
      });
}

template <class Stored>
constexpr auto sum_of = at_level<sum_plain<kGeneric, Stored>, sum_plain<kAvx2, Stored>, sum_plain<kAvx512, Stored>>;

}  // namespace

Summation summation_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::complex64:
      return {4, sum_of<float>};
    case DType::float64:
    case DType::complex128:
      return {8, sum_of<double>};
    case DType::float16:
      return {2, sum_float16};
    case DType::bfloat16:
      return {2, at_level<sum_bfloat16<kGeneric>, sum_bfloat16<kAvx2>, sum_bfloat16<kAvx512>>};
    case DType::int8:
      return {1, sum_of<std::int8_t>};
    case DType::int16:
      return {2, sum_of<std::int16_t>};
    case DType::int32:
      return {4, sum_of<std::int32_t>};
    case DType::int64:
      return {8, sum_of<std::int64_t>};
    case DType::uint8:
    case DType::boolean:
      break;
  }
  return {1, sum_of<std::uint8_t>};
}

}  // namespace lockstep::kernels
