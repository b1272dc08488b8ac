// SPDX-License-Identifier: BSD-3-Clause
#include "core/numbers/dtype.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/tensor.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep {

namespace {

struct Row {
  DType dtype;
  std::size_t size;
  std::string_view name;
};

constexpr std::array<Row, kAllDTypes.size()> kRows = {{
    {DType::float32, 4, "float32"},
    {DType::float64, 8, "float64"},
    {DType::float16, 2, "float16"},
    {DType::bfloat16, 2, "bfloat16"},
    {DType::int8, 1, "int8"},
    {DType::int16, 2, "int16"},
    {DType::int32, 4, "int32"},
    {DType::int64, 8, "int64"},
    {DType::uint8, 1, "uint8"},
    {DType::boolean, 1, "bool"},
    {DType::complex64, 8, "complex64"},
    {DType::complex128, 16, "complex128"},
}};

template <float (*kToFloat)(std::uint16_t)>
void widen_one_by_one(const std::byte* from, float* target, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, from + i * kHalfBytes, sizeof(bits));
    target[i] = kToFloat(bits);
  }
}

template <std::uint16_t (*kFromFloat)(float)>
void narrow_one_by_one(const float* from, std::byte* target, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t bits = kFromFloat(from[i]);
    std::memcpy(target + i * kHalfBytes, &bits, sizeof(bits));
  }
}

/// A vector at any address. A class holds the alias, because clang forgets the alignment of a template of aliases.
template <class T, std::size_t kCount>
struct VectorOf {
  using Type [[gnu::vector_size(kCount * sizeof(T)), gnu::aligned(1), gnu::may_alias]] = T;
};
template <class T, std::size_t kCount>
using Vector = typename VectorOf<T, kCount>::Type;

template <std::size_t kLanes>
[[gnu::always_inline]] inline void widen_bfloat16(const std::byte* from, float* target, std::size_t count) {
  using Wide = Vector<std::uint32_t, kLanes>;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto* halves = reinterpret_cast<const Vector<std::uint16_t, kLanes>*>(from + i * kHalfBytes);
    *reinterpret_cast<Wide*>(target + i) = __builtin_convertvector(*halves, Wide) << 16;
  }
  widen_one_by_one<bfloat16_to_float>(from + i * kHalfBytes, target + i, count - i);
}

template <std::size_t kLanes>
[[gnu::always_inline]] inline void narrow_bfloat16(const float* from, std::byte* target, std::size_t count) {
  using Narrow = Vector<std::uint16_t, kLanes>;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto bits = *reinterpret_cast<const Vector<std::uint32_t, kLanes>*>(from + i);
    const auto rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
    const auto halves = (bits & 0x7FFFFFFFU) > 0x7F800000U ? (bits >> 16) | 0x40U : rounded;
    *reinterpret_cast<Narrow*>(target + i * kHalfBytes) = __builtin_convertvector(halves, Narrow);
  }
  narrow_one_by_one<float_to_bfloat16>(from + i, target + i * kHalfBytes, count - i);
}

#if defined(__x86_64__)

[[gnu::target("arch=x86-64-v4")]] void widen_bfloat16_avx512(const std::byte* from, float* target, std::size_t count) {
  widen_bfloat16<16>(from, target, count);
}
[[gnu::target("arch=x86-64-v4")]] void narrow_bfloat16_avx512(const float* from, std::byte* target, std::size_t count) {
  narrow_bfloat16<16>(from, target, count);
}
[[gnu::target("arch=x86-64-v3")]] void widen_bfloat16_avx2(const std::byte* from, float* target, std::size_t count) {
  widen_bfloat16<8>(from, target, count);
}
[[gnu::target("arch=x86-64-v3")]] void narrow_bfloat16_avx2(const float* from, std::byte* target, std::size_t count) {
  narrow_bfloat16<8>(from, target, count);
}

[[gnu::target("arch=x86-64-v3")]] void widen_float16(const std::byte* from, float* target, std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from + i * kHalfBytes));
    _mm256_storeu_ps(target + i, _mm256_cvtph_ps(halves));
  }
  widen_one_by_one<half_to_float>(from + i * kHalfBytes, target + i, count - i);
}

[[gnu::target("arch=x86-64-v3")]] void narrow_float16(const float* from, std::byte* target, std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(target + i * kHalfBytes), halves);
  }
  narrow_one_by_one<float_to_half>(from + i, target + i * kHalfBytes, count - i);
}

#endif

}  // namespace

std::size_t size_of(DType dtype) { return kRows.at(static_cast<std::size_t>(dtype)).size; }

std::string_view name_of(DType dtype) { return kRows.at(static_cast<std::size_t>(dtype)).name; }

DType dtype_from_name(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  throw ConfigError("dtype '" + std::string(name) + "' is unknown; use PyTorch's names, such as float32");
}

float bfloat16_to_float(std::uint16_t bits) { return to_float(BFloat16{bits}); }

std::uint16_t float_to_bfloat16(float value) { return to_bfloat16(value).bits; }

float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  const std::uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  constexpr std::uint32_t kInfinity = 0x7F800000U;
  constexpr std::uint32_t kRoundsToInfinity = 0x477FF000U;  // 65520, halfway beyond the largest half
  constexpr std::uint32_t kSmallestNormal = 0x38800000U;    // 2^-14
  if (magnitude > kInfinity) return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU));
  if (magnitude >= kRoundsToInfinity) return static_cast<std::uint16_t>(sign | 0x7C00U);
  if (magnitude < kSmallestNormal) {
    // Scaled by 2^24 a subnormal half is an integer; nearbyint rounds it to even.
    const float scaled = std::ldexp(std::bit_cast<float>(magnitude), 24);
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyint(scaled)));
  }
  const std::uint32_t round_to_even = 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((magnitude + round_to_even - (112U << 23)) >> 13));
}

HalfFormat half_format(DType dtype, [[maybe_unused]] ProcessorLevel level) {
  const bool is_bfloat16 = dtype == DType::bfloat16;
#if defined(__x86_64__)
  if (level != ProcessorLevel::generic) {
    if (is_bfloat16 && level >= ProcessorLevel::avx512) return {widen_bfloat16_avx512, narrow_bfloat16_avx512};
    if (is_bfloat16) return {widen_bfloat16_avx2, narrow_bfloat16_avx2};
    return {.widen = widen_float16, .narrow = narrow_float16};
  }
#endif
  if (is_bfloat16) {
    return {.widen = widen_one_by_one<bfloat16_to_float>, .narrow = narrow_one_by_one<float_to_bfloat16>};
  }
  return {.widen = widen_one_by_one<half_to_float>, .narrow = narrow_one_by_one<float_to_half>};
}

}  // namespace lockstep
