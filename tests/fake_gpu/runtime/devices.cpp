// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/devices.hpp"

#include <cstdio>
#include <limits>

#include "fake_gpu/runtime/attributes.hpp"
#include "fake_gpu/runtime/settings.hpp"

namespace lockstep::fake_gpu {

namespace {

thread_local int current = 0;

int card_of(int device) { return device / settings().devices_per_card; }

}  // namespace

int current_device() { return current; }

cudaError_t use_device(int device) {
  if (!is_device(device)) return cudaErrorInvalidDevice;
  current = device;
  return cudaSuccess;
}

bool is_device(int device) { return device >= 0 && device < settings().devices; }

cudaDeviceProp properties_of(int device) {
  const auto value = [](cudaDeviceAttr attribute) { return attribute_of_device(attribute); };
  cudaDeviceProp properties{};
  std::snprintf(properties.name, sizeof(properties.name), "fake GPU");
  for (std::size_t i = 0; i < sizeof(properties.uuid.bytes); ++i) {
    properties.uuid.bytes[i] = static_cast<char>(device * 16 + static_cast<int>(i));
  }
  properties.totalGlobalMem = settings().memory_bytes;
  properties.sharedMemPerBlock = static_cast<std::size_t>(value(cudaDevAttrMaxSharedMemoryPerBlock));
  properties.sharedMemPerBlockOptin = static_cast<std::size_t>(value(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  properties.sharedMemPerMultiprocessor = static_cast<std::size_t>(value(cudaDevAttrMaxSharedMemoryPerMultiprocessor));
  properties.reservedSharedMemPerBlock = static_cast<std::size_t>(value(cudaDevAttrReservedSharedMemoryPerBlock));
  properties.totalConstMem = static_cast<std::size_t>(value(cudaDevAttrTotalConstantMemory));
  properties.regsPerBlock = value(cudaDevAttrMaxRegistersPerBlock);
  properties.regsPerMultiprocessor = value(cudaDevAttrMaxRegistersPerMultiprocessor);
  properties.warpSize = value(cudaDevAttrWarpSize);
  properties.memPitch = std::numeric_limits<int>::max();
  properties.maxThreadsPerBlock = value(cudaDevAttrMaxThreadsPerBlock);
  properties.maxThreadsDim[0] = value(cudaDevAttrMaxBlockDimX);
  properties.maxThreadsDim[1] = value(cudaDevAttrMaxBlockDimY);
  properties.maxThreadsDim[2] = value(cudaDevAttrMaxBlockDimZ);
  properties.maxGridSize[0] = value(cudaDevAttrMaxGridDimX);
  properties.maxGridSize[1] = value(cudaDevAttrMaxGridDimY);
  properties.maxGridSize[2] = value(cudaDevAttrMaxGridDimZ);
  properties.maxBlocksPerMultiProcessor = value(cudaDevAttrMaxBlocksPerMultiprocessor);
  properties.maxThreadsPerMultiProcessor = value(cudaDevAttrMaxThreadsPerMultiProcessor);
  properties.multiProcessorCount = value(cudaDevAttrMultiProcessorCount);
  properties.major = value(cudaDevAttrComputeCapabilityMajor);
  properties.minor = value(cudaDevAttrComputeCapabilityMinor);
  properties.l2CacheSize = value(cudaDevAttrL2CacheSize);
  properties.memoryBusWidth = value(cudaDevAttrGlobalMemoryBusWidth);
  properties.textureAlignment = static_cast<std::size_t>(value(cudaDevAttrTextureAlignment));
  properties.texturePitchAlignment = static_cast<std::size_t>(value(cudaDevAttrTexturePitchAlignment));
  properties.asyncEngineCount = value(cudaDevAttrAsyncEngineCount);
  properties.pciBusID = 1 + card_of(device);
  properties.canMapHostMemory = properties.concurrentKernels = properties.unifiedAddressing = 1;
  properties.streamPrioritiesSupported = properties.cooperativeLaunch = properties.hostRegisterSupported = 1;
  properties.globalL1CacheSupported = properties.localL1CacheSupported = properties.computePreemptionSupported = 1;
  return properties;
}

std::string bus_id_of(int device) {
  char id[16];
  std::snprintf(id, sizeof(id), "0000:%02X:00.0", static_cast<unsigned>(1 + card_of(device)) & 0xFF);
  return id;
}

}  // namespace lockstep::fake_gpu
