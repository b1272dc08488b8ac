// SPDX-License-Identifier: BSD-3-Clause
// NCCL's memory is that of CUDA; to register it has no effect but that a handle must be one that exists.
#include <nccl.h>

#include <map>
#include <mutex>

#include "fake_gpu/nccl/communicator.hpp"
#include "fake_gpu/nccl/errors.hpp"

namespace {

namespace nccl = lockstep::fake_gpu::nccl;

std::mutex registrations_mutex;
std::map<std::size_t, ncclComm_t> registrations;  // number -> owner
std::size_t last_registration = 0;

}  // namespace

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  return nccl::guarded([&] {
    nccl::check(cudaMalloc(memory, bytes), "cudaMalloc");
    return ncclSuccess;
  });
}

ncclResult_t ncclMemFree(void* memory) {
  return nccl::guarded([&] {
    nccl::check(cudaFree(memory), "cudaFree");
    return ncclSuccess;
  });
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void*, size_t, void** registration) {
  return nccl::guarded([&] {
    nccl::find(comm);
    const std::lock_guard<std::mutex> hold(registrations_mutex);
    registrations[++last_registration] = comm;
    *registration = reinterpret_cast<void*>(last_registration);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void* registration) {
  return nccl::guarded([&] {
    nccl::find(comm);
    const std::lock_guard<std::mutex> hold(registrations_mutex);
    const auto found = registrations.find(reinterpret_cast<std::size_t>(registration));
    if (found == registrations.end() || found->second != comm) {
      throw nccl::Refusal(ncclInvalidUsage, "The registration does not exist in this communicator.");
    }
    registrations.erase(found);
    return ncclSuccess;
  });
}
