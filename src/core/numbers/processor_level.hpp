// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

std::string_view name_of(ProcessorLevel level);

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

}  // namespace lockstep
