// SPDX-License-Identifier: BSD-3-Clause
// Functions that are compiled for every level of processors: those of the level in use run.
#pragma once

#include "core/numbers/processor_level.hpp"

/// An attribute before a function that runs at_level, and before those that it calls. Whatever is not inlined is
/// compiled for the level `generic` only.
#define LOCKSTEP_INLINE [[gnu::always_inline]] inline

#if defined(__x86_64__)
#define LOCKSTEP_AVX2 [[gnu::noinline, gnu::target("arch=x86-64-v3")]]
#define LOCKSTEP_AVX512 [[gnu::noinline, gnu::target("arch=x86-64-v4")]]
#else
#define LOCKSTEP_AVX2
#define LOCKSTEP_AVX512
#endif

namespace lockstep {

template <auto kGeneric, auto kAvx2, auto kAvx512>
struct Levels;

template <class Result, class... Arguments, Result (*kGeneric)(Arguments...), Result (*kAvx2)(Arguments...),
          Result (*kAvx512)(Arguments...)>
struct Levels<kGeneric, kAvx2, kAvx512> {
  LOCKSTEP_AVX512 static Result avx512(Arguments... arguments) { return kAvx512(arguments...); }
  LOCKSTEP_AVX2 static Result avx2(Arguments... arguments) { return kAvx2(arguments...); }
  [[gnu::noinline]] static Result generic(Arguments... arguments) { return kGeneric(arguments...); }

  static Result run(Arguments... arguments) {
    switch (processor_level()) {
      case ProcessorLevel::generic:
        return generic(arguments...);
      case ProcessorLevel::avx2:
        return avx2(arguments...);
      default:
        return avx512(arguments...);
    }
  }
};

/// A function with the arguments of three LOCKSTEP_INLINE functions, which are compiled for one level each. They are
/// the same function, or instances of a template over the length of a vector. Arguments are passed as they are
/// declared.
template <auto kGeneric, auto kAvx2 = kGeneric, auto kAvx512 = kAvx2>
inline constexpr auto at_level = &Levels<kGeneric, kAvx2, kAvx512>::run;

}  // namespace lockstep
