// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::kernels {

enum class Combination { sum, product, min, max };

/// The operation on each element.
struct ElementReduction {
  DType dtype = DType::float32;  ///< not complex
  Combination by = Combination::sum;
  std::size_t divisor = 1;  ///< divides a sum; 1 for integers
  /// The order of a sum. Empty = that of the sources, ((s0 + s1) + s2) + ... Else source i is laid on a stack, then
  /// merges[i] times the two topmost values are replaced by (lower + upper); at the end one is left.
  std::span<const std::uint8_t> merges = {};
  /// Only 16-bit floats: so many of the first sources, and the targets if is_partial, are float32.
  std::size_t partial_sources = 0;
  bool is_partial = false;
};

/// Combines `count` elements of all sources in the element type, divides a sum, and writes the result to every target.
/// float16 and bfloat16 are combined as float32 and rounded once, ties to even. Each element has the same bits whatever
/// the count, the place and the level of the processor. Targets may be sources; nothing needs to be aligned.
void reduce(std::span<const std::byte* const> sources, std::span<std::byte* const> targets, std::size_t count,
            const ElementReduction& reduction);

}  // namespace lockstep::kernels
