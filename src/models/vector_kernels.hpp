// SPDX-License-Identifier: BSD-3-Clause
// What kernels share that are written for vectors of 8 float32 numbers.
#pragma once

#include <cstdint>

#include "core/clones.hpp"

/// Before a function of a kernel. What it calls must be inlined, or have this, too.
#if defined(__x86_64__)
#define LOCKSTEP_VECTOR_KERNEL [[gnu::target("avx2,fma")]]
#else
#define LOCKSTEP_VECTOR_KERNEL
#endif

namespace lockstep::models {

inline constexpr std::int64_t kVector = 8;
using Vector [[gnu::vector_size(32)]] = float;
using UnalignedVector [[gnu::vector_size(32), gnu::aligned(4), gnu::may_alias]] = float;

/// Whether this processor can run the kernels.
inline bool has_vector_kernels() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
#else
  return true;
#endif
}

/// Whether they are faster on this processor than oneDNN and LibTorch, which have kernels for longer vectors.
inline bool has_fast_vector_kernels() {
#if defined(__x86_64__)
  static const bool are_fast = has_vector_kernels() && !__builtin_cpu_supports("avx512f");
  return are_fast;
#else
  return false;  // not measured
#endif
}

}  // namespace lockstep::models
