// SPDX-License-Identifier: BSD-3-Clause
// NCCL's collectives and groups.
#include <nccl.h>

#include <memory>

#include "fake_gpu/nccl/call.hpp"
#include "fake_gpu/nccl/communicator.hpp"
#include "fake_gpu/nccl/group.hpp"

namespace lockstep::fake_gpu::nccl {

namespace {

ncclResult_t call(ncclComm_t comm, const NcclOperation& operation) {
  return grouped([&] {
    const std::shared_ptr<FakeCommunicator> communicator = find(comm);
    communicator->require_ready();
    const Position position = communicator->member().position();
    require_valid(operation.call, position.size);
    if (operation.call.count == 0) return ncclSuccess;  // NCCL queues nothing
    require_usable_buffers(operation, position);
    return Group::of_this_thread().add(communicator, operation);
  });
}

}  // namespace

}  // namespace lockstep::fake_gpu::nccl

using lockstep::fake_gpu::nccl::call;
using lockstep::fake_gpu::nccl::CallSite;
using lockstep::fake_gpu::nccl::Group;
using lockstep::fake_gpu::nccl::grouped;
using lockstep::fake_gpu::nccl::guarded;
using lockstep::fake_gpu::nccl::NcclCallKind;

ncclResult_t ncclGroupStart() {
  Group::of_this_thread().start();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  return guarded([] { return Group::of_this_thread().end(); });
}

ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {{NcclCallKind::all_reduce, type, op, 0, count}, send, recv, stream, CallSite::here()});
}

ncclResult_t ncclReduce(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {{NcclCallKind::reduce, type, op, root, count}, send, recv, stream, CallSite::here()});
}

ncclResult_t ncclBroadcast(const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return call(comm, {{NcclCallKind::broadcast, type, ncclSum, root, count}, send, recv, stream, CallSite::here()});
}

ncclResult_t ncclAllGather(const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return call(comm, {{NcclCallKind::all_gather, type, ncclSum, 0, count}, send, recv, stream, CallSite::here()});
}

ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {{NcclCallKind::reduce_scatter, type, op, 0, count}, send, recv, stream, CallSite::here()});
}
