// SPDX-License-Identifier: BSD-3-Clause
// A GPU without a GPU. LibTorch's own CUDA half runs on libraries that have the names and symbols of CUDA's and NCCL's:
//
//   runtime/   libcudart.so.13: memory, streams, events, capture, graphs
//   driver/    libcuda.so.1: what the probe of the driver and LibTorch ask
//   nccl/      libnccl.so.2: collectives between processes of one host
//   stubs/     all other libraries of NVIDIA that LibTorch needs: a function that describes succeeds and does nothing,
//              one that computes names itself and ends the process
//   kernels/   libfake_gpu_kernels.so: each operator of LibTorch runs its kernel for CPUs on the memory of the fake GPU
//
// It shows whether calls are allowed, their order between streams and hosts, and what they cost in launches, waits,
// copies and allocations; values are those of the CPU. It shows nothing about speed, and nothing about the arithmetic
// of a real GPU. A race between streams, or between a stream and the host, ends the process at the call that made it.
//
// This header is what the other libraries and the tests ask of the runtime. Tests find these functions where the
// process holds the fake runtime (`is_here`); they never need it in order to be linked.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "fake_gpu/step_counters.hpp"

namespace lockstep::fake_gpu {

/// Memory that queued work reads or writes; `begin` is the address that the program has.
struct Range {
  const void* begin = nullptr;
  std::size_t bytes = 0;
  bool is_write = false;
};

using Work = std::function<void()>;

/// Exit status of a process that this GPU ends, because of a race or another broken rule that a real GPU does not
/// report.
constexpr int kRaceExit = 70;

/// Queues `work` on a stream, or records it where the stream is captured. An exception of it is the device's error,
/// which stays (as that of a device assertion).
/// @param name    of static lifetime; named where a race is reported
/// @param ranges  all device and page-locked memory that the work touches
[[gnu::visibility("default")]] cudaError_t enqueue(cudaStream_t stream, const char* name, std::vector<Range> ranges,
                                                   Work work);

/// Queues a collective, as `enqueue` does. It counts as one NCCL call instead of a launch; recorded, at each launch of
/// the graph. The collectives of a group are one call of this function, with the ranges of all. For the fake NCCL.
[[gnu::visibility("default")]] cudaError_t enqueue_collective(cudaStream_t stream, const char* name,
                                                              std::vector<Range> ranges, Work work);

/// The host reads, writes or frees memory now, which it must not do while queued work uses it. Plain accesses of
/// the host to page-locked memory are not seen: this call stands for them.
/// @param name  of static lifetime; named where a race is reported
[[gnu::visibility("default")]] void note_host_access(const char* name, const Range& range);

/// The address where the bytes of device memory are: a host access to the address that the program has faults, as on a
/// GPU. Other addresses are returned as they are.
[[gnu::visibility("default")]] void* address(const void* memory);

[[gnu::visibility("default")]] bool is_capturing(cudaStream_t stream);

/// One collective without work on a stream; `enqueue_collective` counts its own. For the fake NCCL.
[[gnu::visibility("default")]] void count_nccl_call();

/// The fault that shall go wrong, once, in this process.
enum class PlannedFault {
  none,
  out_of_memory,  ///< the n-th cudaMalloc from now finds no memory, and neither does the one that repeats it
  host_memory,    ///< the n-th cudaHostAlloc from now finds no memory
  sticky,         ///< the n-th launch from now ends with an error that every later call returns (cudaErrorAssert)
  nccl_late,      ///< the n-th collective from now begins `seconds` late on this rank
  nccl_exit,      ///< the process ends at the n-th collective from now, without a word
  nccl_error,     ///< the n-th collective from now ends with ncclRemoteError as its asynchronous error
};
struct FaultPlan {
  PlannedFault fault = PlannedFault::none;
  std::int64_t occurrence = 0;  ///< 1 = the next
  double seconds = 0;
};
/// Also by environment: FAKE_GPU_FAULT=out_of_memory:12, nccl_late:3:5 (5 s), and FAKE_GPU_FAULT_RANK=1, the rank of
/// mpirun or srun that it concerns (all).
[[gnu::visibility("default")]] void plan_fault(const FaultPlan& plan);

/// Whether the plan of `fault` has come to its moment: counts one event of that kind. For the fake NCCL.
[[gnu::visibility("default")]] bool is_due(PlannedFault fault, double* seconds = nullptr);

}  // namespace lockstep::fake_gpu
