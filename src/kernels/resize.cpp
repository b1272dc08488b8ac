// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/resize.hpp"

#include <algorithm>

#include "core/numbers/processor_level.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::kernels {

namespace {

constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

LOCKSTEP_INLINE std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

LOCKSTEP_INLINE void filter_columns(const std::uint8_t* in, int in_rows, std::size_t row_bytes, const AxisTaps& taps,
                                    std::uint8_t* out) {
  constexpr std::size_t kBlock = 64;
  const std::int32_t* weights = taps.weights;
  for (int y = 0; y < taps.count; ++y, weights += taps.taps, out += row_bytes) {
    const int start = taps.starts[y];
    const int used = std::min(taps.taps, in_rows - start);
    for (std::size_t first = 0; first < row_bytes; first += kBlock) {
      const std::size_t size = std::min(kBlock, row_bytes - first);
      std::int32_t sums[kBlock];
      for (std::size_t i = 0; i < size; ++i) sums[i] = kHalf;
      for (int tap = 0; tap < used; ++tap) {
        const std::uint8_t* const row = in + static_cast<std::size_t>(start + tap) * row_bytes + first;
        const std::int32_t weight = weights[tap];
        for (std::size_t i = 0; i < size; ++i) sums[i] += weight * row[i];
      }
      for (std::size_t i = 0; i < size; ++i) out[first + i] = to_byte(sums[i]);
    }
  }
}

}  // namespace

void resize_rows_plain(const std::uint8_t* in, std::size_t in_stride, int rows, int channels, const AxisTaps& taps,
                       std::uint8_t* out) {
  for (int y = 0; y < rows; ++y, in += in_stride) {
    const std::int32_t* weights = taps.weights;
    for (int x = 0; x < taps.count; ++x, weights += taps.taps, out += channels) {
      const std::uint8_t* const from = in + static_cast<std::ptrdiff_t>(taps.starts[x]) * channels;
      for (int c = 0; c < channels; ++c) {
        std::int32_t sum = kHalf;
        for (int tap = 0; tap < taps.taps; ++tap) {
          if (weights[tap] != 0) sum += weights[tap] * from[tap * channels + c];
        }
        out[c] = to_byte(sum);
      }
    }
  }
}

void resize_columns_plain(const std::uint8_t* in, int in_rows, std::size_t row_bytes, const AxisTaps& taps,
                          std::uint8_t* out) {
  at_level<filter_columns>(in, in_rows, row_bytes, taps, out);
}

#if defined(__x86_64__)

namespace {

#define LOCKSTEP_AVX2_INLINE [[gnu::target("arch=x86-64-v3")]] inline

// A weight w is split: w = upper * 2^15 + lower, with 0 <= lower < 2^15. Both parts have 16 bits, so that one
// instruction multiplies two taps of eight values. The sums modulo 2^32 are those of the plain implementation.

/// Sums of 4 pixels (12 bytes) of three channels, as [R, G, B, 0] in both halves.
LOCKSTEP_AVX2_INLINE __m256i pairs_of_four_pixels(const std::uint8_t* pixels) {
  const __m256i order = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1,  //
                                         6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pixels));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), order);
}

template <int kRows>
LOCKSTEP_AVX2 void resize_rows_avx2(const std::uint8_t* in, std::size_t in_stride, const AxisTaps& taps,
                                    std::uint8_t* out, std::size_t out_stride) {
  const __m256i lower_of_group = _mm256_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2);
  const __m256i upper_of_group = _mm256_setr_epi32(1, 1, 1, 1, 3, 3, 3, 3);
  const __m128i half = _mm_set1_epi32(kHalf);
  const std::int32_t* pairs = taps.pairs;
  for (int x = 0; x < taps.count; ++x) {
    const std::uint8_t* from = in + static_cast<std::ptrdiff_t>(taps.starts[x]) * 3;
    __m256i lower_sums[kRows];
    __m256i upper_sums[kRows];
    for (int row = 0; row < kRows; ++row) lower_sums[row] = upper_sums[row] = _mm256_setzero_si256();
    for (int tap = 0; tap < taps.taps; tap += kTapGroup, pairs += kTapGroup, from += 3 * kTapGroup) {
      const __m256i group = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(pairs)));
      const __m256i lower = _mm256_permutevar8x32_epi32(group, lower_of_group);
      const __m256i upper = _mm256_permutevar8x32_epi32(group, upper_of_group);
      for (int row = 0; row < kRows; ++row) {
        const __m256i pixels = pairs_of_four_pixels(from + static_cast<std::size_t>(row) * in_stride);
        lower_sums[row] = _mm256_add_epi32(lower_sums[row], _mm256_madd_epi16(pixels, lower));
        upper_sums[row] = _mm256_add_epi32(upper_sums[row], _mm256_madd_epi16(pixels, upper));
      }
    }
    for (int row = 0; row < kRows; ++row) {
      const __m256i both = _mm256_add_epi32(_mm256_slli_epi32(upper_sums[row], 15), lower_sums[row]);
      const __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
      const __m128i values = _mm_srai_epi32(_mm_add_epi32(sum, half), kWeightBits);
      const __m128i words = _mm_packs_epi32(values, values);
      const int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
      std::uint8_t* const target = out + static_cast<std::size_t>(row) * out_stride;
      // The fourth byte belongs to the next pixel of the row, which is written later.
      x + 1 < taps.count ? __builtin_memcpy(target, &bytes, 4) : __builtin_memcpy(target, &bytes, 3);
    }
    out += 3;
  }
}

LOCKSTEP_AVX2 void resize_rows_of_three_channels(const std::uint8_t* in, std::size_t in_stride, int rows,
                                                 const AxisTaps& taps, std::uint8_t* out) {
  constexpr int kRows = 4;
  const std::size_t out_stride = static_cast<std::size_t>(taps.count) * 3;
  int y = 0;
  for (; y + kRows <= rows; y += kRows) {
    resize_rows_avx2<kRows>(in, in_stride, taps, out, out_stride);
    in += kRows * in_stride;
    out += kRows * out_stride;
  }
  for (; y < rows; ++y, in += in_stride, out += out_stride) resize_rows_avx2<1>(in, in_stride, taps, out, out_stride);
}

LOCKSTEP_AVX2_INLINE __m256i sixteen_bytes(const std::uint8_t* bytes) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}

/// One block of 16 bytes of one output row.
LOCKSTEP_AVX2_INLINE void resize_column_block(const std::uint8_t* in, std::size_t row_bytes, int used,
                                              const std::int32_t* pairs, std::uint8_t* out) {
  __m256i lower_a = _mm256_setzero_si256();
  __m256i lower_b = lower_a;
  __m256i upper_a = lower_a;
  __m256i upper_b = lower_a;
  for (int tap = 0; tap < used; tap += 2, pairs += 2, in += 2 * row_bytes) {
    const __m256i first = sixteen_bytes(in);
    const __m256i second = tap + 1 < used ? sixteen_bytes(in + row_bytes) : first;  // then its weight is 0
    const __m256i a = _mm256_unpacklo_epi16(first, second);
    const __m256i b = _mm256_unpackhi_epi16(first, second);
    const __m256i lower = _mm256_set1_epi32(pairs[0]);
    const __m256i upper = _mm256_set1_epi32(pairs[1]);
    lower_a = _mm256_add_epi32(lower_a, _mm256_madd_epi16(a, lower));
    lower_b = _mm256_add_epi32(lower_b, _mm256_madd_epi16(b, lower));
    upper_a = _mm256_add_epi32(upper_a, _mm256_madd_epi16(a, upper));
    upper_b = _mm256_add_epi32(upper_b, _mm256_madd_epi16(b, upper));
  }
  const __m256i half = _mm256_set1_epi32(kHalf);
  const __m256i sum_a = _mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(upper_a, 15), lower_a), half);
  const __m256i sum_b = _mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(upper_b, 15), lower_b), half);
  const __m256i words =
      _mm256_packs_epi32(_mm256_srai_epi32(sum_a, kWeightBits), _mm256_srai_epi32(sum_b, kWeightBits));
  const __m256i bytes = _mm256_packus_epi16(words, words);
  const __m128i packed = _mm_unpacklo_epi64(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), packed);
}

/// Blocks read and write beyond the end of a row: rows are written in order, and the memory has slack at its end.
LOCKSTEP_AVX2 void resize_columns_avx2(const std::uint8_t* in, int in_rows, std::size_t row_bytes, const AxisTaps& taps,
                                       std::uint8_t* out) {
  for (int y = 0; y < taps.count; ++y, out += row_bytes) {
    const int start = taps.starts[y];
    const int used = std::min(taps.taps, in_rows - start);
    const std::int32_t* const pairs = taps.pairs + static_cast<std::ptrdiff_t>(y) * taps.taps;
    const std::uint8_t* const from = in + static_cast<std::size_t>(start) * row_bytes;
    for (std::size_t i = 0; i < row_bytes; i += 16) resize_column_block(from + i, row_bytes, used, pairs, out + i);
  }
}

bool has_avx2() { return processor_level() >= ProcessorLevel::avx2; }

}  // namespace

void resize_rows(const std::uint8_t* in, std::size_t in_stride, int rows, int channels, const AxisTaps& taps,
                 std::uint8_t* out) {
  if (channels == 3 && has_avx2()) return resize_rows_of_three_channels(in, in_stride, rows, taps, out);
  resize_rows_plain(in, in_stride, rows, channels, taps, out);
}

void resize_columns(const std::uint8_t* in, int in_rows, std::size_t row_bytes, const AxisTaps& taps,
                    std::uint8_t* out) {
  if (has_avx2()) return resize_columns_avx2(in, in_rows, row_bytes, taps, out);
  resize_columns_plain(in, in_rows, row_bytes, taps, out);
}

#else

void resize_rows(const std::uint8_t* in, std::size_t in_stride, int rows, int channels, const AxisTaps& taps,
                 std::uint8_t* out) {
  resize_rows_plain(in, in_stride, rows, channels, taps, out);
}

void resize_columns(const std::uint8_t* in, int in_rows, std::size_t row_bytes, const AxisTaps& taps,
                    std::uint8_t* out) {
  resize_columns_plain(in, in_rows, row_bytes, taps, out);
}

#endif

}  // namespace lockstep::kernels
