// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <exception>
#include <stdexcept>
#include <string>

#include "mpi/gpu/module_api.hpp"

namespace lockstep::mpi::gpu {

/// Whether every later call returns the error, too: work on the GPU has failed, not this call.
inline bool is_sticky(cudaError_t code) {
  switch (code) {
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorMisalignedAddress:
    case cudaErrorNvlinkUncorrectable:
      return true;
    default:
      return false;
  }
}

inline void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // or a later call would report it again
  if (is_sticky(code)) throw std::runtime_error(std::string(kDeviceFault) + cudaGetErrorString(code));
  throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(code));
}

/// @param comm  whose last error explains more; may be null
inline void check(ncclResult_t code, const char* call, ncclComm_t comm = nullptr) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  std::string text = std::string(call) + ": " + ncclGetErrorString(code);
  const char* const more = ncclGetLastError(comm);
  if (more != nullptr && *more != '\0') text += std::string(" (") + more + ")";
  throw std::runtime_error(text);
}

/// Runs `work` and turns what it throws into a text that stays valid until the thread's next call.
template <class Work>
Fault guarded(Work work) noexcept {
  thread_local std::string text;
  try {
    work();
    return nullptr;
  } catch (const std::exception& error) {
    text = error.what();
  } catch (...) {
    text = "an exception of unknown type";
  }
  return text.c_str();
}

/// Makes `device` that of the calling thread, for good: a rank computes on one GPU. To go back to the one before would
/// bring up the first GPU of the host in every thread that has never chosen, and take memory from the rank there.
inline void choose(int device) {
  int chosen = 0;
  check(cudaGetDevice(&chosen), "cudaGetDevice");
  if (chosen != device) check(cudaSetDevice(device), "cudaSetDevice");
}

}  // namespace lockstep::mpi::gpu
