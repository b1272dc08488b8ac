// SPDX-License-Identifier: BSD-3-Clause
// libcuda.so.1: what the probe of the driver and LibTorch ask of it. Work goes through the runtime.
#include <cuda.h>

#include "fake_gpu/runtime/attributes.hpp"
#include "fake_gpu/runtime/devices.hpp"
#include "fake_gpu/runtime/errors.hpp"
#include "fake_gpu/runtime/settings.hpp"

namespace lockstep::fake_gpu {

namespace {

CUcontext context() { return reinterpret_cast<CUcontext>(0x1000); }

CUresult init() {
  if (settings().driver_status != 0) return static_cast<CUresult>(settings().driver_status);
  return settings().devices > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult check_device(CUdevice device) {
  if (init() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  return device >= 0 && device < settings().devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

}  // namespace lockstep::fake_gpu

using namespace lockstep::fake_gpu;

extern "C" {

[[gnu::visibility("default")]] CUresult cuInit(unsigned) { return init(); }

[[gnu::visibility("default")]] CUresult cuDriverGetVersion(int* version) {
  *version = kCudaVersion;
  return CUDA_SUCCESS;
}

[[gnu::visibility("default")]] CUresult cuDeviceGetCount(int* count) {
  *count = init() == CUDA_SUCCESS ? settings().devices : 0;
  return init() == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

[[gnu::visibility("default")]] CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return check_device(ordinal);
}

[[gnu::visibility("default")]] CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute,
                                                             CUdevice device) {
  *value = attribute_of_device(attribute);
  return check_device(device);
}

[[gnu::visibility("default")]] CUresult cuGetErrorString(CUresult error, const char** sentence) {
  *sentence = sentence_of(error);
  return *sentence != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

[[gnu::visibility("default")]] CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* is_active) {
  *flags = 0;
  *is_active = 1;
  return check_device(device);
}

[[gnu::visibility("default")]] CUresult cuDevicePrimaryCtxRetain(CUcontext* retained, CUdevice device) {
  *retained = context();
  return check_device(device);
}

[[gnu::visibility("default")]] CUresult cuCtxGetCurrent(CUcontext* current) {
  *current = context();
  return CUDA_SUCCESS;
}

[[gnu::visibility("default")]] CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }

}  // extern "C"
