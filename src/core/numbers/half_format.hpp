// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <cstddef>

#include "core/numbers/processor_level.hpp"

namespace lockstep {

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
