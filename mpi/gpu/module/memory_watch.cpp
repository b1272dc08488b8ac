// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/gpu/module/memory_watch.hpp"

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "mpi/gpu/module/fault.hpp"

namespace lockstep::mpi::gpu {

namespace {

using Stats = c10::CachingDeviceAllocator::DeviceStats;

constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
constexpr std::size_t kMaxSizes = 40;  // the largest; a model has few more

std::string megabytes(std::size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

std::string row(const char* what, std::int64_t bytes) {
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), "  %-46s %16lld\n", what, static_cast<long long>(bytes));
  return text.data();
}

std::string totals(c10::DeviceIndex device) {
  const Stats stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device);
  return row("used by tensors", stats.allocated_bytes[kAll].current) +
         row("used by tensors, maximum so far", stats.allocated_bytes[kAll].peak) +
         row("taken from the GPU by LibTorch", stats.reserved_bytes[kAll].current) +
         row("taken from the GPU by LibTorch, maximum so far", stats.reserved_bytes[kAll].peak) +
         row("free pieces of blocks that are in use", stats.inactive_split_bytes[kAll].current);
}

/// How many pieces of each size are in use, the largest first.
std::string sizes_in_use(c10::DeviceIndex device) {
  std::map<std::size_t, std::int64_t, std::greater<>> counts;
  for (const auto& segment : c10::cuda::CUDACachingAllocator::snapshot({0, 0}, /*include_traces=*/false).segments) {
    if (segment.device != device) continue;
    for (const auto& block : segment.blocks) {
      if (block.allocated) ++counts[block.size];
    }
  }
  std::string text = "pieces in use, the largest first:\n             bytes      count\n";
  std::size_t shown = 0;
  for (const auto& [bytes, count] : counts) {
    if (shown++ == kMaxSizes) return text + "  and " + std::to_string(counts.size() - kMaxSizes) + " smaller sizes\n";
    std::array<char, 64> line{};
    std::snprintf(line.data(), line.size(), "  %16zu %10lld\n", bytes, static_cast<long long>(count));
    text += line.data();
  }
  return text;
}

std::string description_of(std::int64_t device, std::size_t requested, std::size_t total, std::size_t free) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  return "memory of GPU " + std::to_string(device) + " when it refused a request, in bytes:\n" +
         row("requested", static_cast<std::int64_t>(requested)) +
         row("free on the GPU", static_cast<std::int64_t>(free)) +
         row("memory of the GPU", static_cast<std::int64_t>(total)) + totals(index) + sizes_in_use(index);
}

std::atomic<void (*)(const char* description)> observer = nullptr;

void describe(std::int64_t device, std::size_t requested, std::size_t total, std::size_t free) noexcept {
  try {
    if (observer != nullptr) observer.load()(description_of(device, requested, total, free).c_str());
  } catch (const std::exception&) {  // the error itself follows
  }
}

}  // namespace

void observe_refusals(void (*observe)(const char* description)) {
  observer = observe;
  static std::once_flag is_attached;
  std::call_once(is_attached, [] {
    at::globalContext().lazyInitDevice(at::kCUDA);  // there are no allocators to observe earlier
    c10::cuda::CUDACachingAllocator::attachOutOfMemoryObserver(describe);
  });
}

std::string describe_refusal(std::size_t requested) {
  int device = 0;
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  describe(device, requested, total, free);
  const Stats stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
  const std::int64_t used = stats.allocated_bytes[kAll].current;
  return "CUDA out of memory. Tried to allocate " + megabytes(requested) + ". GPU " + std::to_string(device) +
         " has a total capacity of " + megabytes(total) + " of which " + megabytes(free) +
         " is free. Of the allocated memory " + megabytes(static_cast<std::size_t>(used)) +
         " is allocated by PyTorch, and " +
         megabytes(static_cast<std::size_t>(stats.reserved_bytes[kAll].current - used)) + " is reserved by PyTorch";
}

}  // namespace lockstep::mpi::gpu
