// SPDX-License-Identifier: BSD-3-Clause
// The functions of the fake GPU for tests that also run on GPUs, where they are not there.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "fake_gpu/step_counters.hpp"

namespace lockstep::fake_gpu {

/// A function of the fake runtime by its name in the library; null where the process holds another runtime.
template <class Function>
Function* found(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

/// `counters`; null on a real GPU.
inline Counters (*const counted)() = found<Counters()>("_ZN8lockstep8fake_gpu8countersEv");
/// `begin_step`; null on a real GPU.
inline void (*const note_step)() = found<void()>("_ZN8lockstep8fake_gpu10begin_stepEv");

inline bool is_here() { return counted != nullptr; }

/// Whether an operation runs in the thread that queues it, which then waits for peers that stay away.
inline bool is_eager() {
  const char* const schedule = std::getenv("FAKE_GPU_SCHEDULE");
  return is_here() && schedule != nullptr && std::string(schedule) == "eager";
}

/// The cost of `work`; zeros on a real GPU.
inline Counters cost_of(const std::function<void()>& work) {
  const Counters before = is_here() ? counted() : Counters();
  work();
  return is_here() ? counted() - before : before;
}

}  // namespace lockstep::fake_gpu
