// SPDX-License-Identifier: BSD-3-Clause
// Vectors of float32 numbers, for kernels that are templates over their length. The compiler divides a vector that a
// level does not have into shorter ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/numbers/processor_level.hpp"

namespace lockstep::kernels {

/// The length of the vectors of the levels generic and avx2, and that of avx512. A library for tests has long vectors
/// at every level, so that processors without AVX-512 test this instance, too.
#if defined(LOCKSTEP_LONG_VECTORS)
inline constexpr std::int64_t kShortVector = 16;
#else
inline constexpr std::int64_t kShortVector = 8;
#endif
inline constexpr std::int64_t kLongVector = 16;

inline bool has_long_vectors() { return kShortVector == kLongVector || processor_level() >= ProcessorLevel::avx512; }

/// Both instances of a template, called like at_level: with_vectors<f<kShortVector>, f<kLongVector>>(arguments...).
template <auto kShort, auto kLong>
inline constexpr auto with_vectors = at_level<kShort, kShort, kLong>;

/// The instance of the level in use, for a caller with so many short calls that it chooses once.
template <auto kShort, auto kLong>
auto chosen_with_vectors() {
  using Instances = Levels<kShort, kShort, kLong>;
  if (processor_level() == ProcessorLevel::generic) return &Instances::generic;
  return processor_level() == ProcessorLevel::avx2 ? &Instances::avx2 : &Instances::avx512;
}

template <std::int64_t kLength>
struct VectorTypes {
  using Aligned [[gnu::vector_size(kLength * sizeof(float))]] = float;
  using Unaligned [[gnu::vector_size(kLength * sizeof(float)), gnu::aligned(4), gnu::may_alias]] = float;
};

/// No function takes or returns one by value, which would warn of a calling convention that depends on the level.
template <std::int64_t kLength>
using FloatVector = typename VectorTypes<kLength>::Aligned;

/// The kLength numbers from a place on, which need not be aligned. To be read or assigned, not to be bound to a
/// reference to a FloatVector, which would have to be aligned.
template <std::int64_t kLength>
LOCKSTEP_INLINE const typename VectorTypes<kLength>::Unaligned& vector_at(const float* place) {
  return *reinterpret_cast<const typename VectorTypes<kLength>::Unaligned*>(place);
}
template <std::int64_t kLength>
LOCKSTEP_INLINE typename VectorTypes<kLength>::Unaligned& vector_at(float* place) {
  return *reinterpret_cast<typename VectorTypes<kLength>::Unaligned*>(place);
}

/// Exchanges the numbers of two rows that are kDistance columns apart.
template <std::int64_t kLength, std::int64_t kDistance, std::int64_t... kColumn>
LOCKSTEP_INLINE void exchange(FloatVector<kLength>& upper, FloatVector<kLength>& lower,
                              std::integer_sequence<std::int64_t, kColumn...>) {
  const FloatVector<kLength> a = upper;
  const FloatVector<kLength> b = lower;
  upper = __builtin_shufflevector(a, b, ((kColumn & kDistance) == 0 ? kColumn : kLength + kColumn - kDistance)...);
  lower = __builtin_shufflevector(a, b, ((kColumn & kDistance) == 0 ? kColumn + kDistance : kLength + kColumn)...);
}

/// Row i of the result is column i. First, halves of rows are exchanged (kDistance = kLength / 2), then quarters, ...
template <std::int64_t kLength, std::int64_t kDistance = kLength / 2>
LOCKSTEP_INLINE void transpose(FloatVector<kLength> (&rows)[kLength]) {
#pragma GCC unroll 8
  for (std::int64_t k = 0; k < kLength / 2; ++k) {
    const std::int64_t i = k % kDistance + k / kDistance * 2 * kDistance;
    exchange<kLength, kDistance>(rows[i], rows[i + kDistance], std::make_integer_sequence<std::int64_t, kLength>{});
  }
  if constexpr (kDistance > 1) transpose<kLength, kDistance / 2>(rows);
}

/// Columns of the right factor of a product of matrices that are adjacent in memory are a panel: [depth][kPanel].
struct RightFactor {
  const float* values;
  std::int64_t distance;        ///< distance from one panel to the next
  std::int64_t depth_step = 0;  ///< distance from one row of a panel to the next; 0 = kPanel
};

/// Adds a product of matrices to sums that stay in registers.
/// @param left   element (r, k) is left[r * row_step + k * depth_step]
/// @param right  kVectors * kLength columns of it
template <std::int64_t kLength, std::int64_t kPanel, std::int64_t kRows, std::int64_t kVectors>
LOCKSTEP_INLINE void add_product(const float* left, std::int64_t row_step, std::int64_t depth_step, RightFactor right,
                                 std::int64_t depth, FloatVector<kLength> (&sums)[kRows][kVectors]) {
  constexpr std::int64_t kUpperRows = kRows > 8 ? kRows / 2 : kRows;
  const float* lower = left + kUpperRows * row_step;
  // The offsets of all rows from one pointer would not fit into the registers, so the compiler must not see a relation.
  if constexpr (kUpperRows < kRows) asm("" : "+r"(lower));
  const std::int64_t right_step = right.depth_step == 0 ? kPanel : right.depth_step;
  for (std::int64_t k = 0; k < depth; ++k, left += depth_step, lower += depth_step, right.values += right_step) {
    FloatVector<kLength> row[kVectors];
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < kVectors; ++v) {
      const std::int64_t column = v * kLength;
      row[v] = vector_at<kLength>(right.values + column / kPanel * right.distance + column % kPanel);
    }
#pragma GCC unroll 16
    for (std::int64_t r = 0; r < kRows; ++r) {
      const float factor = r < kUpperRows ? left[r * row_step] : lower[(r - kUpperRows) * row_step];
#pragma GCC unroll 8
      for (std::int64_t v = 0; v < kVectors; ++v) sums[r][v] += factor * row[v];
    }
  }
}

}  // namespace lockstep::kernels
