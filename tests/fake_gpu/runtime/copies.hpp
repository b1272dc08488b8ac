// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "fake_gpu/runtime/streams.hpp"

namespace lockstep::fake_gpu {

struct Copy {
  void* target = nullptr;
  const void* from = nullptr;
  std::size_t width = 0;  ///< bytes of a row
  std::size_t rows = 1;
  std::size_t to_pitch = 0;  ///< bytes from row to row
  std::size_t from_pitch = 0;
  cudaMemcpyKind kind = cudaMemcpyDefault;
};

/// Copies as cudaMemcpyAsync does, with respect to the host as CUDA's "API synchronization behavior" says.
cudaError_t copy(FakeStream& stream, const Copy& copy, Lock& lock);

/// Copies as cudaMemcpy does.
cudaError_t copy_and_wait(FakeStream& stream, const Copy& copy, Lock& lock);

/// @param is_synchronous  cudaMemset, which waits for page-locked memory alone
cudaError_t set_memory(FakeStream& stream, void* memory, int byte, std::size_t bytes, bool is_synchronous, Lock& lock);

}  // namespace lockstep::fake_gpu
