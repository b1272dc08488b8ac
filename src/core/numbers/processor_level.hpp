// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

// The instructions that a process uses. Each level includes those before it. The environment variable LOCKSTEP_CPU
// lowers the level of all kernels: those of Lockstep, and those of LibTorch, oneDNN and MKL, whose own variables are
// set before main begins, unless the user has set them. The libraries read them at their first use.
namespace lockstep {

enum class ProcessorLevel {
  generic,  ///< generic: what every x86-64 processor has, and the only level of other kinds of processors
  avx2,     ///< x86-64-v3: AVX2, FMA, F16C
  avx512,   ///< x86-64-v4: AVX-512 F, BW, CD, DQ and VL
  amx,      ///< tiles for products of bfloat16, which oneDNN uses; kernels of Lockstep are those of avx512
};

/// The manufacturer of a processor. Processors of the same level differ in which loops they run fastest.
enum class ProcessorVendor { amd, intel, other };

std::string_view name_of(ProcessorLevel level);
std::string_view name_of(ProcessorVendor vendor);

/// The vendor that an x86-64 processor names itself. Processors of other kinds have the vendor `other`.
ProcessorVendor processor_vendor();

/// The highest level that the processor and the operating system have.
ProcessorLevel machine_level();

/// The level in use. If LOCKSTEP_CPU cannot be used, it is that of the machine.
ProcessorLevel processor_level();

/// The levels of this machine, from generic on.
std::vector<ProcessorLevel> machine_levels();

/// The variables that lower other libraries, and their values in this process. Empty if LOCKSTEP_CPU lowers nothing.
std::vector<std::pair<std::string, std::string>> library_limits();

/// @throws ConfigError  if LOCKSTEP_CPU names no level, or one that this machine does not have
void require_usable_level();

/// Lowers the kernels of Lockstep, and not those of other libraries, as long as it exists. For tests of one thread.
class ScopedLevel {
 public:
  explicit ScopedLevel(ProcessorLevel level);
  ScopedLevel(const ScopedLevel&) = delete;
  ScopedLevel& operator=(const ScopedLevel&) = delete;
  ~ScopedLevel();

 private:
  ProcessorLevel before_;
};

// Functions that are compiled for every level of processors: those of the level in use run.

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
