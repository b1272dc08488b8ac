// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/attributes.hpp"

#include <cuda_runtime_api.h>

#include <limits>
#include <map>

namespace lockstep::fake_gpu {

int attribute_of_device(int attribute) {
  static const std::map<int, int> values = {
      {cudaDevAttrMaxThreadsPerBlock, 1024},
      {cudaDevAttrMaxBlockDimX, 1024},
      {cudaDevAttrMaxBlockDimY, 1024},
      {cudaDevAttrMaxBlockDimZ, 64},
      {cudaDevAttrMaxGridDimX, std::numeric_limits<int>::max()},
      {cudaDevAttrMaxGridDimY, 65535},
      {cudaDevAttrMaxGridDimZ, 65535},
      {cudaDevAttrMaxSharedMemoryPerBlock, 49152},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, 166912},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 167936},
      {cudaDevAttrReservedSharedMemoryPerBlock, 1024},
      {cudaDevAttrTotalConstantMemory, 65536},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMaxRegistersPerBlock, 65536},
      {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
      {cudaDevAttrMultiProcessorCount, 8},
      {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
      {cudaDevAttrMaxBlocksPerMultiprocessor, 32},
      {cudaDevAttrComputeCapabilityMajor, 8},
      {cudaDevAttrComputeCapabilityMinor, 0},
      {cudaDevAttrL2CacheSize, 4 << 20},
      {cudaDevAttrGlobalMemoryBusWidth, 4096},
      {cudaDevAttrTextureAlignment, 512},
      {cudaDevAttrTexturePitchAlignment, 32},
      {cudaDevAttrAsyncEngineCount, 2},
      {cudaDevAttrUnifiedAddressing, 1},
      {cudaDevAttrConcurrentKernels, 1},
      {cudaDevAttrCanMapHostMemory, 1},
      {cudaDevAttrCooperativeLaunch, 1},
      {cudaDevAttrHostRegisterSupported, 1},
      {cudaDevAttrStreamPrioritiesSupported, 1},
  };
  const auto found = values.find(attribute);
  return found != values.end() ? found->second : 0;
}

}  // namespace lockstep::fake_gpu
