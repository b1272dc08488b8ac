// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <cstddef>
#include <span>

namespace lockstep::mpi {

/// Whether values of `dtype` can be reduced by `op`: averages are for floating-point types.
/// @throws std::logic_error  they cannot
void require_reducible(DType dtype, ReduceOp op);

/// Bytes of one vector register.
enum class VectorWidth : std::size_t { sse = 16, avx2 = 32, avx512 = 64 };

/// The widest that this processor has; 16 bytes on other kinds of processors.
VectorWidth widest_vectors();

/// Combines `count` elements of all sources in their order, ((s0 + s1) + s2) + ..., in the element type, multiplies by
/// 1/sources for an average, and writes the result to every target. Each element has the same bits whatever the count,
/// the place and the width. Targets may be sources; nothing needs to be aligned.
void reduce(std::span<const std::byte* const> sources, std::span<std::byte* const> targets, std::size_t count,
            DType dtype, ReduceOp op, VectorWidth width = widest_vectors());

}  // namespace lockstep::mpi
