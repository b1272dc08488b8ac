// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <optional>

namespace lockstep::fake_gpu {

/// The launch parameters between the two calls into which a compiler splits `kernel<<<...>>>()`.
struct LaunchConfiguration {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};

/// @param function  the address on the host that stands for the kernel
/// @param name      its mangled name; stays
void register_kernel(const void* function, const char* name);

void push_configuration(const LaunchConfiguration& configuration);
std::optional<LaunchConfiguration> pop_configuration();

/// Real kernels cannot run: the process ends, with the name of the kernel.
[[noreturn]] void refuse_launch(const void* function);

}  // namespace lockstep::fake_gpu
