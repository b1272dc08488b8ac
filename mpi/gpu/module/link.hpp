// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "mpi/gpu/module_api.hpp"

namespace lockstep::mpi::gpu {

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

  bool is_under_way() const;
  void finalize();
  void abort();

  void* allocate(std::size_t bytes, void** registration);
  void release(void* memory, void* registration);

  void all_reduce(void* values, std::size_t count, DType dtype, ReduceOp op);
  void broadcast(void* memory, std::size_t bytes, int root);
  void all_gather(const void* mine, void* all, std::size_t bytes);
  void reduce_scatter(const void* const* slices, const std::size_t* counts, void* mine, DType dtype, ReduceOp op);

  Event* mark();
  void await(const Event& event) const;
  bool is_over(const Event& event) const;
  void drop(Event* event);
  /// Has the link's stream wait for what the current stream has so far.
  void follow_current_stream();
  void follow(const Event& event) const;

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
