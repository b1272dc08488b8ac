// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// Before a loop over elements: compiled for several vector widths, the widest that the processor has is taken at load
/// time. Without contraction into fused multiply-adds (a flag of the whole build) all of them give the same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define LOCKSTEP_VECTORISED __attribute__((noinline, target_clones("avx512f", "avx2", "default")))
#else
#define LOCKSTEP_VECTORISED
#endif
