// SPDX-License-Identifier: BSD-3-Clause
// Functions of the driver for kernels that are compiled while a program runs. LibTorch needs their names alone.

extern "C" {

#define LOCKSTEP_UNSUPPORTED(name) \
  [[gnu::visibility("default")]] int name() { return 801; } /* CUDA_ERROR_NOT_SUPPORTED */

LOCKSTEP_UNSUPPORTED(cuFuncGetAttribute)
LOCKSTEP_UNSUPPORTED(cuFuncSetAttribute)
LOCKSTEP_UNSUPPORTED(cuFuncSetCacheConfig)
LOCKSTEP_UNSUPPORTED(cuLaunchCooperativeKernel)
LOCKSTEP_UNSUPPORTED(cuLaunchKernel)
LOCKSTEP_UNSUPPORTED(cuLinkAddData_v2)
LOCKSTEP_UNSUPPORTED(cuLinkComplete)
LOCKSTEP_UNSUPPORTED(cuLinkCreate_v2)
LOCKSTEP_UNSUPPORTED(cuModuleGetFunction)
LOCKSTEP_UNSUPPORTED(cuModuleLoad)
LOCKSTEP_UNSUPPORTED(cuModuleLoadData)
LOCKSTEP_UNSUPPORTED(cuModuleLoadDataEx)
LOCKSTEP_UNSUPPORTED(cuModuleUnload)
LOCKSTEP_UNSUPPORTED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
LOCKSTEP_UNSUPPORTED(cuPointerGetAttribute)
LOCKSTEP_UNSUPPORTED(cuTensorMapEncodeTiled)

#undef LOCKSTEP_UNSUPPORTED

}  // extern "C"
