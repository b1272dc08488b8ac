// SPDX-License-Identifier: BSD-3-Clause
// What kernels share that are written for vectors of 8 float32 numbers.
#pragma once

#include <cstdint>

#include "core/numbers/processor_level.hpp"

/// An attribute before a function of a kernel, and before those that it calls; those that pass vectors have the second
/// one.
#if defined(__x86_64__)
#define LOCKSTEP_VECTOR_KERNEL [[gnu::target("avx2,fma")]]
#else
#define LOCKSTEP_VECTOR_KERNEL
#endif
#define LOCKSTEP_VECTOR_INLINE LOCKSTEP_VECTOR_KERNEL [[gnu::always_inline]] inline

namespace lockstep::kernels {

inline constexpr std::int64_t kVector = 8;
using Vector [[gnu::vector_size(32)]] = float;
using UnalignedVector [[gnu::vector_size(32), gnu::aligned(4), gnu::may_alias]] = float;

LOCKSTEP_VECTOR_INLINE Vector load(const float* from) { return *reinterpret_cast<const UnalignedVector*>(from); }
LOCKSTEP_VECTOR_INLINE void store(Vector value, float* target) { *reinterpret_cast<UnalignedVector*>(target) = value; }

/// Row i of the result is column i.
LOCKSTEP_VECTOR_INLINE void transpose(Vector (&rows)[kVector]) {
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    const Vector a = rows[i];
    const Vector b = rows[i + 4];
    rows[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
    rows[i + 4] = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
  }
#pragma GCC unroll 8
  for (int k = 0; k < 4; ++k) {
    const int i = k % 2 + k / 2 * 4;
    const Vector a = rows[i];
    const Vector b = rows[i + 2];
    rows[i] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
    rows[i + 2] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 2) {
    const Vector a = rows[i];
    const Vector b = rows[i + 1];
    rows[i] = __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14);
    rows[i + 1] = __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
  }
}

/// Adds a product of matrices to sums that stay in registers.
/// @param left   element (r, k) is left[r * row_step + k * depth_step]
/// @param right  [depth][kVectors * kVector]
template <std::int64_t kRows, std::int64_t kVectors>
LOCKSTEP_VECTOR_INLINE void add_product(const float* left, std::int64_t row_step, std::int64_t depth_step,
                                        const float* right, std::int64_t depth, Vector (&sums)[kRows][kVectors]) {
  for (std::int64_t k = 0; k < depth; ++k, left += depth_step, right += kVectors * kVector) {
    Vector row[kVectors];
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < kVectors; ++v) row[v] = load(right + v * kVector);
#pragma GCC unroll 8
    for (std::int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (std::int64_t v = 0; v < kVectors; ++v) sums[r][v] += left[r * row_step] * row[v];
    }
  }
}

}  // namespace lockstep::kernels
