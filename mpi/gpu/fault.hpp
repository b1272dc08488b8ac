// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <exception>
#include <stdexcept>
#include <string>

#include "module_api.hpp"

namespace lockstep::mpi::gpu {

inline void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // or a later call would report it again
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

/// Makes `device` the calling thread's until the end of the scope.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    check(cudaGetDevice(&before_), "cudaGetDevice");
    if (device == before_) return;
    check(cudaSetDevice(device), "cudaSetDevice");
    has_changed_ = true;
  }
  ~OnDevice() {
    if (has_changed_) cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool has_changed_ = false;
};

}  // namespace lockstep::mpi::gpu
