// SPDX-License-Identifier: BSD-3-Clause
// Memory and copies.
#include "fake_gpu/runtime/capture.hpp"
#include "fake_gpu/runtime/copies.hpp"
#include "fake_gpu/runtime/counters.hpp"
#include "fake_gpu/runtime/devices.hpp"
#include "fake_gpu/runtime/exported.hpp"
#include "fake_gpu/runtime/faults.hpp"
#include "fake_gpu/runtime/host.hpp"
#include "fake_gpu/runtime/memory.hpp"
#include "fake_gpu/runtime/report.hpp"
#include "fake_gpu/runtime/settings.hpp"

namespace lockstep::fake_gpu {

namespace {

/// A call that captures do not see, and that returns the device's error.
template <class Call>
cudaError_t unsafe(Call call) {
  return locked([&](Lock& lock) {
    if (device_status() != cudaSuccess) return device_status();
    const cudaError_t refusal = refuse_unsafe_call();
    return refusal == cudaSuccess ? call(lock) : refusal;
  });
}

template <class Call>
cudaError_t unsafe_in_stream(cudaStream_t handle, Call call) {
  return unsafe([&](Lock& lock) {
    FakeStream* const stream = find_stream(handle);
    return stream != nullptr ? call(*stream, lock) : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t count_if(cudaError_t result, const Counters& done) {
  if (result == cudaSuccess) count(done);
  return result;
}

cudaError_t allocate_on_device(void** memory, std::size_t bytes) {
  return unsafe([&](Lock&) {
    *memory = nullptr;
    if (must_fail(bytes)) return cudaErrorMemoryAllocation;
    trace("cudaMalloc of " + std::to_string(bytes) + " bytes");
    return count_if(allocate(cudaMemoryTypeDevice, bytes, memory), {.device_allocations = 1});
  });
}

/// The device must be idle: cudaFree waits for it.
cudaError_t free_on_device(void* memory) {
  if (memory == nullptr) return locked([](Lock&) { return device_status(); });
  return unsafe([memory](Lock& lock) {
    const MemoryBlock* const block = block_of(memory);
    wait_for(streams_of(block != nullptr ? block->device : current_device()), lock);
    return count_if(release(cudaMemoryTypeDevice, memory), {.device_frees = 1});
  });
}

cudaError_t allocate_on_host(void** memory, std::size_t bytes) {
  return unsafe([&](Lock&) {
    *memory = nullptr;
    if (is_due(PlannedFault::host_memory)) return cudaErrorMemoryAllocation;
    trace("cudaHostAlloc of " + std::to_string(bytes) + " bytes");
    return count_if(allocate(cudaMemoryTypeHost, bytes, memory), {.host_allocations = 1});
  });
}

/// Nothing promises that freeing page-locked memory waits for copies.
cudaError_t free_on_host(void* memory) {
  if (memory == nullptr) return locked([](Lock&) { return device_status(); });
  return unsafe([memory](Lock&) {
    if (const MemoryBlock* const block = block_of(memory))
      access_from_host("cudaFreeHost", {memory, block->bytes, true});
    return release(cudaMemoryTypeHost, memory);
  });
}

cudaError_t unlock_pages(void* memory) {
  return unsafe([memory](Lock&) {
    if (const MemoryBlock* const block = block_of(memory)) {
      access_from_host("cudaHostUnregister", {memory, block->bytes, true});
    }
    return unregister_memory(memory);
  });
}

Copy rows_of(void* target, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
             std::size_t rows, cudaMemcpyKind kind) {
  return {.target = target,
          .from = from,
          .width = width,
          .rows = rows,
          .to_pitch = to_pitch,
          .from_pitch = from_pitch,
          .kind = kind};
}

Copy bytes_of(void* target, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return rows_of(target, bytes, from, bytes, bytes, 1, kind);
}

cudaError_t copy_in(cudaStream_t stream, const Copy& what) {
  return with_stream(stream, [&](FakeStream& found, Lock& lock) { return copy(found, what, lock); });
}

cudaError_t copy_now(const Copy& what) {
  return unsafe_in_stream(cudaStreamLegacy,
                          [&](FakeStream& legacy, Lock& lock) { return copy_and_wait(legacy, what, lock); });
}

}  // namespace

}  // namespace lockstep::fake_gpu

using namespace lockstep::fake_gpu;

extern "C" {

[[gnu::visibility("default")]] cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return allocate_on_device(memory, bytes);
}

[[gnu::visibility("default")]] cudaError_t cudaFree(void* memory) { return free_on_device(memory); }

[[gnu::visibility("default")]] cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  return allocate_on_host(memory, bytes);
}

[[gnu::visibility("default")]] cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  return allocate_on_host(memory, bytes);
}

[[gnu::visibility("default")]] cudaError_t cudaFreeHost(void* memory) { return free_on_host(memory); }

[[gnu::visibility("default")]] cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned) {
  return unsafe([&](Lock&) { return count_if(register_memory(memory, bytes), {.host_allocations = 1}); });
}

[[gnu::visibility("default")]] cudaError_t cudaHostUnregister(void* memory) { return unlock_pages(memory); }

[[gnu::visibility("default")]] cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return locked([&](Lock&) {
    *free = free_bytes();
    *total = settings().memory_bytes;
    return device_status();
  });
}

[[gnu::visibility("default")]] cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                                                    const void* memory) {
  return locked([&](Lock&) {
    const MemoryBlock* const block = block_of(memory);
    *attributes = {};
    attributes->type = block != nullptr ? block->type : cudaMemoryTypeUnregistered;
    attributes->device = block != nullptr ? block->device : cudaInvalidDeviceId;
    if (block == nullptr) return cudaSuccess;
    attributes->devicePointer = const_cast<void*>(memory);
    if (block->type == cudaMemoryTypeHost) attributes->hostPointer = const_cast<void*>(memory);
    return cudaSuccess;
  });
}

[[gnu::visibility("default")]] cudaError_t cudaMemcpy(void* target, const void* from, std::size_t bytes,
                                                      cudaMemcpyKind kind) {
  return copy_now(bytes_of(target, from, bytes, kind));
}

[[gnu::visibility("default")]] cudaError_t cudaMemcpyAsync(void* target, const void* from, std::size_t bytes,
                                                           cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_in(stream, bytes_of(target, from, bytes, kind));
}

[[gnu::visibility("default")]] cudaError_t cudaMemcpy2DAsync(void* target, std::size_t to_pitch, const void* from,
                                                             std::size_t from_pitch, std::size_t width,
                                                             std::size_t rows, cudaMemcpyKind kind,
                                                             cudaStream_t stream) {
  return copy_in(stream, rows_of(target, to_pitch, from, from_pitch, width, rows, kind));
}

[[gnu::visibility("default")]] cudaError_t cudaMemcpyPeerAsync(void* target, int, const void* from, int,
                                                               std::size_t bytes, cudaStream_t stream) {
  return copy_in(stream, bytes_of(target, from, bytes, cudaMemcpyDeviceToDevice));
}

[[gnu::visibility("default")]] cudaError_t cudaMemset(void* memory, int byte, std::size_t bytes) {
  return unsafe_in_stream(cudaStreamLegacy, [&](FakeStream& legacy, Lock& lock) {
    return set_memory(legacy, memory, byte, bytes, /*is_synchronous=*/true, lock);
  });
}

[[gnu::visibility("default")]] cudaError_t cudaMemsetAsync(void* memory, int byte, std::size_t bytes,
                                                           cudaStream_t stream) {
  return with_stream(stream, [&](FakeStream& found, Lock& lock) {
    return set_memory(found, memory, byte, bytes, /*is_synchronous=*/false, lock);
  });
}

// Memory pools and memory of other processes are not modeled: LibTorch uses them only where it is asked to.

[[gnu::visibility("default")]] cudaError_t cudaMallocAsync(void**, std::size_t, cudaStream_t) {
  return noted(cudaErrorNotSupported);
}

[[gnu::visibility("default")]] cudaError_t cudaFreeAsync(void*, cudaStream_t) { return noted(cudaErrorNotSupported); }

[[gnu::visibility("default")]] cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t*, int) {
  return noted(cudaErrorNotSupported);
}

[[gnu::visibility("default")]] cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return noted(cudaErrorNotSupported);
}

[[gnu::visibility("default")]] cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return noted(cudaErrorNotSupported);
}

[[gnu::visibility("default")]] cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, std::size_t) {
  return noted(cudaErrorNotSupported);
}

[[gnu::visibility("default")]] cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) {
  return noted(cudaErrorNotSupported);
}

[[gnu::visibility("default")]] cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) {
  return noted(cudaErrorNotSupported);
}

[[gnu::visibility("default")]] cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) {
  return noted(cudaErrorNotSupported);
}

[[gnu::visibility("default")]] cudaError_t cudaIpcCloseMemHandle(void*) { return noted(cudaErrorNotSupported); }

}  // extern "C"
