// SPDX-License-Identifier: BSD-3-Clause
// The costs of steps on the fake GPU, also for programs without the headers of CUDA.
#pragma once

#include <cstdint>

namespace lockstep::fake_gpu {

/// The number of events since the process began.
struct Counters {
  std::int64_t launches = 0;            ///< operators and graphs; no copies, no memsets, no collectives
  std::int64_t synchronizations = 0;    ///< host waits for work that was queued since the last `begin_step`
  std::int64_t late_waits = 0;          ///< host waits for older work
  std::int64_t pageable_copies = 0;     ///< copies to or from host memory that is not page-locked
  std::int64_t host_reads = 0;          ///< copies from the device to the host
  std::int64_t device_allocations = 0;  ///< cudaMalloc
  std::int64_t device_frees = 0;        ///< cudaFree
  std::int64_t host_allocations = 0;    ///< cudaHostAlloc, cudaHostRegister
  std::int64_t nccl_calls = 0;          ///< collectives; one in a graph counts when it is launched
};
[[gnu::visibility("default")]] Counters counters();

inline Counters operator-(const Counters& now, const Counters& before) {
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

/// A training step begins: what is queued from now on belongs to it.
[[gnu::visibility("default")]] void begin_step();

}  // namespace lockstep::fake_gpu
