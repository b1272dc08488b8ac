// SPDX-License-Identifier: BSD-3-Clause
// What nvcc makes of kernels: registration, when a library is loaded, and launches.
#include <cstring>

#include "fake_gpu/runtime/exported.hpp"
#include "fake_gpu/runtime/launches.hpp"

using namespace lockstep::fake_gpu;

extern "C" {

[[gnu::visibility("default")]] void** __cudaRegisterFatBinary(void*) {
  static void* handle[1];
  return handle;
}

[[gnu::visibility("default")]] void __cudaRegisterFatBinaryEnd(void**) {}

[[gnu::visibility("default")]] void __cudaUnregisterFatBinary(void**) {}

[[gnu::visibility("default")]] void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int,
                                                           uint3*, uint3*, dim3*, dim3*, int*) {
  register_kernel(function, name);
}

// Variables of kernels live where the host has their namesakes.
[[gnu::visibility("default")]] void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}

[[gnu::visibility("default")]] char __cudaInitModule(void**) { return 0; }

[[gnu::visibility("default")]] unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes,
                                                                    cudaStream_t stream) {
  push_configuration({.grid = grid, .block = block, .shared_bytes = shared_bytes, .stream = stream});
  return 0;
}

[[gnu::visibility("default")]] cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block,
                                                                      std::size_t* shared_bytes, void* stream) {
  const auto configuration = pop_configuration();
  if (!configuration) return noted(cudaErrorMissingConfiguration);
  *grid = configuration->grid;
  *block = configuration->block;
  *shared_bytes = configuration->shared_bytes;
  *static_cast<cudaStream_t*>(stream) = configuration->stream;
  return cudaSuccess;
}

[[gnu::visibility("default")]] cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

[[gnu::visibility("default")]] cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, std::size_t,
                                                              cudaStream_t) {
  refuse_launch(kernel);
}

[[gnu::visibility("default")]] cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void**, std::size_t,
                                                            cudaStream_t) {
  refuse_launch(function);
}

[[gnu::visibility("default")]] cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void* function,
                                                               void**) {
  refuse_launch(function);
}

[[gnu::visibility("default")]] cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3, dim3, void**,
                                                                       std::size_t, cudaStream_t) {
  refuse_launch(function);
}

[[gnu::visibility("default")]] cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->ptxVersion = 80;
  attributes->binaryVersion = 80;
  attributes->maxDynamicSharedSizeBytes = 49152;
  return cudaSuccess;
}

[[gnu::visibility("default")]] cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}

[[gnu::visibility("default")]] cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int,
                                                                                         std::size_t) {
  *blocks = 2;
  return cudaSuccess;
}

[[gnu::visibility("default")]] cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks,
                                                                                                  const void*, int,
                                                                                                  std::size_t,
                                                                                                  unsigned) {
  *blocks = 2;
  return cudaSuccess;
}

[[gnu::visibility("default")]] cudaError_t cudaGetSymbolAddress(void** address, const void* variable) {
  *address = const_cast<void*>(variable);
  return cudaSuccess;
}

[[gnu::visibility("default")]] cudaError_t cudaMemcpyToSymbol(const void* variable, const void* from, std::size_t bytes,
                                                              std::size_t offset, cudaMemcpyKind) {
  std::memcpy(static_cast<char*>(const_cast<void*>(variable)) + offset, from, bytes);
  return cudaSuccess;
}

}  // extern "C"
