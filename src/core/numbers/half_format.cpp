// SPDX-License-Identifier: BSD-3-Clause
#include "core/numbers/half_format.hpp"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep {

namespace {

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
