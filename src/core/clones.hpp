// SPDX-License-Identifier: BSD-3-Clause
// For loops that are compiled for several processors: the program takes the best that there is.
#pragma once

/// Before a function that is no template. What it calls is compiled for one processor only unless it is inlined.
#if defined(__x86_64__) && !defined(__clang__)
#define LOCKSTEP_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define LOCKSTEP_CLONES
#endif

#define LOCKSTEP_INLINE [[gnu::always_inline]] inline
