// SPDX-License-Identifier: BSD-3-Clause
// NCCL's memory is that of CUDA. To register it has no effect, but is a call of the communicator like any other.
#include <nccl.h>

#include <map>
#include <mutex>

#include "fake_gpu/fake_gpu.hpp"
#include "fake_gpu/nccl/communicator.hpp"
#include "fake_gpu/nccl/errors.hpp"

namespace {

namespace nccl = lockstep::fake_gpu::nccl;

std::mutex memory_mutex;  // guards the rest
std::map<void*, std::size_t> allocated_bytes;
std::map<std::size_t, ncclComm_t> registrations;  // number -> owner
std::size_t last_registration = 0;

/// NCCL unmaps its memory (cuMemUnmap). Nothing promises that this waits for the work that uses it, as cudaFree does.
void require_unused(void* memory) {
  const std::lock_guard<std::mutex> hold(memory_mutex);
  if (auto block = allocated_bytes.extract(memory)) {
    lockstep::fake_gpu::note_host_access("ncclMemFree", {memory, block.mapped(), true});
  }
}

}  // namespace

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  return nccl::guarded([&] {
    nccl::check(cudaMalloc(memory, bytes), "cudaMalloc");
    const std::lock_guard<std::mutex> hold(memory_mutex);
    allocated_bytes[*memory] = bytes;
    return ncclSuccess;
  });
}

ncclResult_t ncclMemFree(void* memory) {
  return nccl::guarded([&] {
    require_unused(memory);
    nccl::check(cudaFree(memory), "cudaFree");
    return ncclSuccess;
  });
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void*, size_t, void** registration) {
  return nccl::guarded([&] {
    const auto communicator = nccl::find(comm);
    communicator->require_ready();
    {
      const std::lock_guard<std::mutex> hold(memory_mutex);
      registrations[++last_registration] = comm;
      *registration = reinterpret_cast<void*>(last_registration);
    }
    return communicator->begin([] { return true; });
  });
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void* registration) {
  return nccl::guarded([&] {
    nccl::find(comm)->require_ready();
    const std::lock_guard<std::mutex> hold(memory_mutex);
    const auto found = registrations.find(reinterpret_cast<std::size_t>(registration));
    if (found == registrations.end() || found->second != comm) {
      throw nccl::Refusal(ncclInvalidUsage, "The registration does not exist in this communicator.");
    }
    registrations.erase(found);
    return ncclSuccess;
  });
}
