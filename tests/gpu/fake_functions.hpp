// SPDX-License-Identifier: BSD-3-Clause
// The functions of the fake GPU for tests that also run on GPUs. Only files that are built with the fake include this.
#pragma once

#include <dlfcn.h>

#include "fake_gpu/fake_gpu.hpp"

namespace lockstep::fake_gpu {

/// A function of the fake runtime by its name in the library; null where the process holds another runtime.
template <class Function>
Function* found(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

inline bool is_here() { return found<Counters()>("_ZN8lockstep8fake_gpu8countersEv") != nullptr; }

// The following need `is_here`.

/// As `counters`.
inline Counters counted() { return found<Counters()>("_ZN8lockstep8fake_gpu8countersEv")(); }
/// As `plan_fault`.
inline void plan(const FaultPlan& fault) {
  found<void(const FaultPlan&)>("_ZN8lockstep8fake_gpu10plan_faultERKNS0_9FaultPlanE")(fault);
}
/// As `begin_step`.
inline void note_step() { found<void()>("_ZN8lockstep8fake_gpu10begin_stepEv")(); }

/// What happened after `before` was counted.
inline Counters since(const Counters& before) {
  const Counters now = counted();
  return {.launches = now.launches - before.launches,
          .synchronizations = now.synchronizations - before.synchronizations,
          .late_waits = now.late_waits - before.late_waits,
          .pageable_copies = now.pageable_copies - before.pageable_copies,
          .host_reads = now.host_reads - before.host_reads,
          .device_allocations = now.device_allocations - before.device_allocations,
          .device_frees = now.device_frees - before.device_frees,
          .host_allocations = now.host_allocations - before.host_allocations,
          .nccl_calls = now.nccl_calls - before.nccl_calls};
}

}  // namespace lockstep::fake_gpu
