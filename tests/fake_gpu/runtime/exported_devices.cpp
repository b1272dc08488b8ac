// SPDX-License-Identifier: BSD-3-Clause
// Devices, versions, the driver behind the runtime.
#include <dlfcn.h>

#include <cstdio>
#include <string>

#include "fake_gpu/runtime/attributes.hpp"
#include "fake_gpu/runtime/capture.hpp"
#include "fake_gpu/runtime/devices.hpp"
#include "fake_gpu/runtime/exported.hpp"
#include "fake_gpu/runtime/kernels_library.hpp"
#include "fake_gpu/runtime/settings.hpp"

namespace lockstep::fake_gpu {

namespace {

constexpr int kLowestPriority = 0;
constexpr int kHighestPriority = -5;

/// The error that the driver starts with.
cudaError_t driver_error() {
  if (settings().driver_status != 0) return static_cast<cudaError_t>(settings().driver_status);
  return settings().devices > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t check_device(int device) {
  if (driver_error() != cudaSuccess) return driver_error();
  return is_device(device) ? cudaSuccess : cudaErrorInvalidDevice;
}

/// CUDA_ERROR_NOT_SUPPORTED: LibTorch needs an address for each function of the driver, also for those it never calls.
int unsupported() { return 801; }

void* driver_function(const char* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* const found = driver != nullptr ? dlsym(driver, name) : nullptr;
  return found != nullptr ? found : reinterpret_cast<void*>(&unsupported);
}

cudaError_t synchronize_device() {
  return locked([](Lock& lock) {
    const cudaError_t refusal = refuse_wait_for_device(current_device());
    if (refusal != cudaSuccess) return refusal;
    wait_for(streams_of(current_device()), lock);
    return device_status();
  });
}

}  // namespace

}  // namespace lockstep::fake_gpu

using namespace lockstep::fake_gpu;

extern "C" {

[[gnu::visibility("default")]] cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (driver_error() != cudaSuccess) return noted(driver_error());
  *count = settings().devices;
  load_kernels();
  return cudaSuccess;
}

[[gnu::visibility("default")]] cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return noted(driver_error());
}

[[gnu::visibility("default")]] cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t error = check_device(device); error != cudaSuccess) return noted(error);
  return locked([device](Lock&) {
    const cudaError_t result = use_device(device);
    return device_status() != cudaSuccess ? device_status() : result;
  });
}

[[gnu::visibility("default")]] cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const cudaError_t error = check_device(device); error != cudaSuccess) return noted(error);
  *properties = properties_of(device);
  return cudaSuccess;
}

[[gnu::visibility("default")]] cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (const cudaError_t error = check_device(device); error != cudaSuccess) return noted(error);
  *value = attribute_of_device(attribute);
  return cudaSuccess;
}

[[gnu::visibility("default")]] cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
  if (const cudaError_t error = check_device(device); error != cudaSuccess) return noted(error);
  std::snprintf(id, static_cast<std::size_t>(size), "%s", bus_id_of(device).c_str());
  return cudaSuccess;
}

[[gnu::visibility("default")]] cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  if (lowest != nullptr) *lowest = kLowestPriority;
  if (highest != nullptr) *highest = kHighestPriority;
  return cudaSuccess;
}

[[gnu::visibility("default")]] cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = is_device(device) && is_device(peer) && device != peer ? 1 : 0;
  return cudaSuccess;
}

[[gnu::visibility("default")]] cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return noted(check_device(peer));
}

[[gnu::visibility("default")]] cudaError_t cudaDeviceSynchronize() { return synchronize_device(); }

[[gnu::visibility("default")]] cudaError_t cudaDriverGetVersion(int* version) {
  *version = kCudaVersion;
  return cudaSuccess;
}

[[gnu::visibility("default")]] cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kCudaVersion;
  return cudaSuccess;
}

[[gnu::visibility("default")]] cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                                                            unsigned long long,
                                                                            cudaDriverEntryPointQueryResult* result) {
  *function = driver_function(name);
  if (result != nullptr) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

[[gnu::visibility("default")]] cudaError_t cudaProfilerStart() { return cudaSuccess; }

[[gnu::visibility("default")]] cudaError_t cudaProfilerStop() { return cudaSuccess; }

}  // extern "C"
