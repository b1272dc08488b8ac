// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/gpu/module/link.hpp"

#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep::mpi::gpu {

namespace {

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return ncclFloat32;
    case DType::float64:
      return ncclFloat64;
    case DType::float16:
      return ncclFloat16;
    case DType::bfloat16:
      return ncclBfloat16;
    case DType::int32:
      return ncclInt32;
    case DType::int64:
      return ncclInt64;
    case DType::int8:
      return ncclInt8;
    case DType::uint8:
    case DType::boolean:  // zeros and ones
      return ncclUint8;
    default:
      throw std::logic_error("NCCL does not support this data type");
  }
}

ncclRedOp_t nccl_op(ReduceOp op) {
  constexpr std::array kOps = {ncclSum, ncclAvg, ncclProd, ncclMin, ncclMax};
  return kOps.at(static_cast<std::size_t>(op));
}

OwnedEvent make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return OwnedEvent(event);
}

/// Its kernels come before those of other streams.
OwnedStream make_urgent_stream() {
  int lowest = 0;
  int highest = 0;
  check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest), "cudaStreamCreateWithPriority");
  return OwnedStream(stream);
}

}  // namespace

Link::Link(int device, const ncclUniqueId& id, int ranks, int rank) : device_(device), ranks_(ranks), rank_(rank) {
  choose(device_);
  stream_ = make_urgent_stream();
  begin_ = make_event();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  check(ncclCommInitRankConfig(&comm_, ranks, id, rank, &config), "ncclCommInitRankConfig");
}

Link::~Link() {
  // Errors here cannot be reported.
  cudaSetDevice(device_);
  if (comm_ != nullptr) is_finalized_ ? ncclCommDestroy(comm_) : ncclCommAbort(comm_);
}

template <class Call>
void Link::with_comm(const char* name, Call call) const {
  const std::lock_guard<std::mutex> hold(mutex_);
  if (comm_ == nullptr) throw std::runtime_error(std::string(name) + ": the communicator was aborted");
  check(call(comm_), name, comm_);
}

ncclComm_t Link::taken_comm() {
  const std::lock_guard<std::mutex> hold(mutex_);
  return std::exchange(comm_, nullptr);
}

void Link::poll(bool* is_under_way) {
  ncclResult_t state = ncclSuccess;
  with_comm("ncclCommGetAsyncError", [&](ncclComm_t comm) {
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
    return asked == ncclSuccess ? state : asked;
  });
  *is_under_way = state == ncclInProgress;
}

void Link::finalize() {
  is_finalized_ = true;
  with_comm("ncclCommFinalize", [](ncclComm_t comm) { return ncclCommFinalize(comm); });
}

void Link::abort() {
  choose(device_);
  // The call may wait for another thread, which destroys a graph and needs the mutex on its way.
  const ncclComm_t comm = taken_comm();
  if (comm != nullptr) check(ncclCommAbort(comm), "ncclCommAbort");
}

void* Link::allocate(std::size_t bytes, void** registration) {
  choose(device_);
  void* memory = nullptr;
  *registration = nullptr;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
  check(ncclMemAlloc(&memory, bytes), "ncclMemAlloc");
  with_comm("ncclCommRegister", [&](ncclComm_t comm) { return ncclCommRegister(comm, memory, bytes, registration); });
#else
  check(cudaMalloc(&memory, bytes), "cudaMalloc");
#endif
  check(cudaMemset(memory, 0, bytes), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // other streams may use it from now on
  return memory;
}

void Link::release(void* memory, void* registration) {
  choose(device_);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (comm_ != nullptr && registration != nullptr) {
      check(ncclCommDeregister(comm_, registration), "ncclCommDeregister", comm_);
    }
  }
  check(ncclMemFree(memory), "ncclMemFree");
#else
  static_cast<void>(registration);
  check(cudaFree(memory), "cudaFree");
#endif
}

void Link::follow_current_stream() {
  choose(device_);
  const cudaStream_t current = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device_)).stream();
  check(cudaEventRecord(begin_.get(), current), "cudaEventRecord");
  check(cudaStreamWaitEvent(stream_.get(), begin_.get(), 0), "cudaStreamWaitEvent");
}

void Link::follow_event(Event* event) {
  choose(device_);
  check(cudaStreamWaitEvent(stream_.get(), event->handle.get(), 0), "cudaStreamWaitEvent");
}

void Link::all_reduce(void* values, std::size_t count, DType dtype, ReduceOp op) {
  follow_current_stream();
  with_comm("ncclAllReduce", [&](ncclComm_t comm) {
    return ncclAllReduce(values, values, count, nccl_type(dtype), nccl_op(op), comm, stream_.get());
  });
}

void Link::broadcast(void* memory, std::size_t bytes, int root) {
  follow_current_stream();
  with_comm("ncclBroadcast",
            [&](ncclComm_t comm) { return ncclBroadcast(memory, memory, bytes, ncclInt8, root, comm, stream_.get()); });
}

void Link::all_gather(const void* mine, void* all, std::size_t bytes) {
  follow_current_stream();
  with_comm("ncclAllGather",
            [&](ncclComm_t comm) { return ncclAllGather(mine, all, bytes, ncclInt8, comm, stream_.get()); });
}

void Link::reduce_scatter(const void* const* slices, const std::size_t* counts, void* mine, DType dtype, ReduceOp op) {
  const ncclDataType_t type = nccl_type(dtype);
  const ncclRedOp_t operation = nccl_op(op);
  follow_current_stream();
  if (std::all_of(counts, counts + ranks_, [counts](std::size_t count) { return count == counts[0]; })) {
    return with_comm("ncclReduceScatter", [&](ncclComm_t comm) {
      return ncclReduceScatter(slices[0], mine, counts[0], type, operation, comm, stream_.get());
    });
  }
  // Slices differ in size, which it cannot do: one reduction for each, in one group.
  with_comm("ncclReduce", [&](ncclComm_t comm) {
    check(ncclGroupStart(), "ncclGroupStart");
    ncclResult_t result = ncclSuccess;
    for (int owner = 0; owner < ranks_ && (result == ncclSuccess || result == ncclInProgress); ++owner) {
      if (counts[owner] == 0) continue;
      void* const target = owner == rank_ ? mine : nullptr;
      result = ncclReduce(slices[owner], target, counts[owner], type, operation, owner, comm, stream_.get());
    }
    const ncclResult_t end = ncclGroupEnd();
    return result == ncclSuccess || result == ncclInProgress ? end : result;
  });
}

void Link::mark(Event** event) {
  choose(device_);
  if (free_.empty()) {
    events_.push_back(std::make_unique<Event>());
    free_.reserve(events_.size());
    free_.push_back(events_.back().get());
    events_.back()->handle = make_event();
  }
  check(cudaEventRecord(free_.back()->handle.get(), stream_.get()), "cudaEventRecord");
  *event = free_.back();
  free_.pop_back();
}

void Link::await(Event* event) {
  choose(device_);
  const cudaStream_t current = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device_)).stream();
  check(cudaStreamWaitEvent(current, event->handle.get(), 0), "cudaStreamWaitEvent");
}

void Link::is_over(Event* event, bool* yes) {
  choose(device_);
  const cudaError_t state = cudaEventQuery(event->handle.get());
  *yes = state != cudaErrorNotReady;
  if (*yes) return check(state, "cudaEventQuery");
  cudaGetLastError();  // no error, but it would be taken for one
}

}  // namespace lockstep::mpi::gpu
