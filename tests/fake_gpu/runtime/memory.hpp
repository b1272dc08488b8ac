// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "fake_gpu/fake_gpu.hpp"

/// Memory of the device and page-locked memory. Addresses are never used twice, so a use after a free is always
/// noticed.
namespace lockstep::fake_gpu {

struct MemoryBlock {
  std::size_t bytes = 0;
  cudaMemoryType type = cudaMemoryTypeUnregistered;
  int device = 0;
  bool is_registered = false;  ///< the program's own memory
};

enum class MemoryState {
  not_ours,  ///< memory of the host that is not page-locked
  live,
  freed,  ///< not, or not all of it, in one block that is allocated
};
MemoryState state_of(const Range& range);

/// @return  null for memory that is not ours
const MemoryBlock* block_of(const void* memory);

/// New memory holds NaN in each floating-point type.
/// @param type  cudaMemoryTypeDevice or cudaMemoryTypeHost
cudaError_t allocate(cudaMemoryType type, std::size_t bytes, void** memory);
cudaError_t release(cudaMemoryType type, void* memory);

/// Locks pages that the program has.
cudaError_t register_memory(void* memory, std::size_t bytes);
cudaError_t unregister_memory(void* memory);

/// The free memory of the current device.
std::size_t free_bytes();

}  // namespace lockstep::fake_gpu
