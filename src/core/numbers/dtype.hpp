// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/numbers/processor_level.hpp"

namespace lockstep {

/// A number of 16 bits: the upper half of a float. The conversions are inlined, so that loops over them are vectorized;
/// tensor.hpp declares the same as ordinary functions.
struct BFloat16 {
  std::uint16_t bits;
};

/// Exact.
LOCKSTEP_INLINE float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

/// Rounds to the nearest, and to even between two. NaN stays NaN.
LOCKSTEP_INLINE BFloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  return {static_cast<std::uint16_t>(value == value ? rounded : quiet)};
}

inline constexpr std::size_t kHalfBytes = 2;

/// Conversion of 16-bit floats to float32 (exact) and back (ties to even), bitwise equal to the functions of core for
/// any level of processors. Alignment is not required.
struct HalfFormat {
  void (*widen)(const std::byte* from, float* target, std::size_t count);
  void (*narrow)(const float* from, std::byte* target, std::size_t count);
};

/// @param dtype  float16 or bfloat16
HalfFormat half_format(DType dtype, ProcessorLevel level = processor_level());

}  // namespace lockstep
