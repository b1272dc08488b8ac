// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/dtype.hpp>

#include <cstddef>

namespace lockstep {

/// Bytes of one vector register.
enum class VectorWidth : std::size_t { sse = 16, avx2 = 32, avx512 = 64 };

/// The widest that this processor has; 16 bytes on other kinds of processors.
VectorWidth widest_vectors();

inline constexpr std::size_t kHalfBytes = 2;

/// Conversion of 16-bit floats to float32 (exact) and back (ties to even), bitwise equal to the functions of core for
/// any vector width. Alignment is not required.
struct HalfFormat {
  void (*widen)(const std::byte* from, float* to, std::size_t count);
  void (*narrow)(const float* from, std::byte* to, std::size_t count);
};

/// @param dtype  float16 or bfloat16
HalfFormat half_format(DType dtype, VectorWidth width = widest_vectors());

}  // namespace lockstep
