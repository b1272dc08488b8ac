// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::mpi {

/// Whether values of `dtype` can be reduced by `op`, as start_all_reduce says.
/// @throws std::logic_error  they cannot
void require_reducible(DType dtype, ReduceOp op);

/// Whether they can be summed by lanes, as start_lane_reduce says.
/// @throws std::logic_error  they cannot
void require_lane_reducible(DType dtype, ReduceOp op);

/// The operation on each element.
struct Reduction {
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  std::size_t parts = 0;  ///< number by which `average` divides; 0 = the number of sources
  /// The order of a sum or average. Empty = that of the sources, ((s0 + s1) + s2) + ... Else source i is laid on a
  /// stack, then merges[i] times the two topmost values are replaced by (lower + upper); at the end one is left.
  std::span<const std::uint8_t> merges = {};
  /// A reduction in several parts: so many of the first sources are results of earlier parts, and the result of a part
  /// goes into a later one. Such results are of partial_dtype(dtype); the last part alone forms the average.
  std::size_t partial_sources = 0;
  bool is_partial = false;
};

/// The type in which values of `dtype` are combined: float32 for 16-bit floats.
DType partial_dtype(DType dtype);

/// Combines `count` elements of all sources in the element type, multiplies by 1/parts for an average, and writes the
/// result to every target. float16 and bfloat16 are combined as float32 and rounded once, ties to even. Each element
/// has the same bits whatever the count, the place and the level of the processor. Targets may be sources; nothing
/// needs to be aligned.
void reduce(std::span<const std::byte* const> sources, std::span<std::byte* const> targets, std::size_t count,
            const Reduction& reduction);

}  // namespace lockstep::mpi
