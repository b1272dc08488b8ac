// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

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

struct Destroy {
  void operator()(cudaStream_t stream) const noexcept { cudaStreamDestroy(stream); }
  void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
};
using OwnedStream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy>;
using OwnedEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy>;

struct Event {
  OwnedEvent handle;
};

/// The members are those of ModuleApi; failures are exceptions here.
struct Link {
 public:
  Link(int device, const ncclUniqueId& id, int ranks, int rank);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void poll(bool* is_under_way);
  void finalize();
  void abort();

  void* allocate(std::size_t bytes, void** registration);
  void release(void* memory, void* registration);

  void all_reduce(void* values, std::size_t count, DType dtype, ReduceOp op);
  void broadcast(void* memory, std::size_t bytes, int root);
  void all_gather(const void* mine, void* all, std::size_t bytes);
  void reduce_scatter(const void* const* slices, const std::size_t* counts, void* mine, DType dtype, ReduceOp op);

  void mark(Event** event);
  void await(Event* event);
  void is_over(Event* event, bool* yes);
  void drop(Event* event) { free_.push_back(event); }
  /// Has the link's stream wait for what the current stream has so far.
  void follow_current_stream();
  void follow_event(Event* event);

 private:
  /// Checks what `call(communicator)` returns; nobody aborts the communicator meanwhile.
  template <class Call>
  void with_comm(const char* name, Call call) const;

  /// The communicator, which this object no longer has; null once aborted.
  ncclComm_t taken_comm();

  int device_;
  int ranks_;
  int rank_;
  mutable std::mutex mutex_;   ///< guards the communicator, which another thread may abort
  ncclComm_t comm_ = nullptr;  ///< null once aborted
  bool is_finalized_ = false;
  OwnedStream stream_;
  OwnedEvent begin_;  ///< the point of the current stream that the last operation follows
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<Event*> free_;
};

}  // namespace lockstep::mpi::gpu
