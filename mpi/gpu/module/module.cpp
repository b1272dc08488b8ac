// SPDX-License-Identifier: BSD-3-Clause
// lockstep_gpu.so: the part of Lockstep that needs CUDA and NCCL. Loading it makes LibTorch's CUDA half known, too.
#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>

#include "mpi/gpu/module/link.hpp"

namespace lockstep::mpi::gpu {

/// LibTorch shows the states of generators, as they are in a capture, to graphs only.
struct RecordedGraph : at::cuda::CUDAGraph {
  /// Valid in a capture.
  at::CUDAGeneratorState& draws() const { return *captured_generator_states_.begin()->first; }
};

struct Graph {
  c10::DeviceIndex device = 0;
  at::cuda::MempoolId_t pool;
  at::Generator generator;  ///< a copy of LibTorch's, made before the capture
  RecordedGraph recorded;
};

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

/// See ModuleApi::watch_memory.
void observe_refusals(void (*observe)(const char* description)) {
  observer = observe;
  static std::once_flag is_attached;
  std::call_once(is_attached, [] {
    at::globalContext().lazyInitDevice(at::kCUDA);  // there are no allocators to observe earlier
    c10::cuda::CUDACachingAllocator::attachOutOfMemoryObserver(describe);
  });
}

/// Does the same for a request on the current device that was not LibTorch's.
/// @return  a sentence about it in the words of LibTorch
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

std::string text_of(const cudaUUID_t& uuid) {
  std::string text;
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    std::array<char, 3> byte{};
    std::snprintf(byte.data(), byte.size(), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += byte.data();
  }
  return text;
}

Fault use_device(int device, DeviceFacts* facts) {
  return guarded([&] {
    check(cudaGetDevice(&facts->previous), "cudaGetDevice");
    check(cudaSetDevice(device), "cudaSetDevice");
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    check(cudaFree(nullptr), "cudaFree");  // initializes the device, so that its errors occur here
    std::snprintf(facts->name, sizeof(facts->name), "%s", properties.name);
    std::snprintf(facts->uuid, sizeof(facts->uuid), "%s", text_of(properties.uuid).c_str());
    check(cudaDeviceGetPCIBusId(facts->bus_id, sizeof(facts->bus_id), device), "cudaDeviceGetPCIBusId");
  });
}

Fault locate(const void* memory, int* device, bool* is_host) {
  return guarded([&] {
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes");
    const bool is_device = attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
    *device = is_device ? attributes.device : -1;
    *is_host = attributes.type != cudaMemoryTypeDevice;
  });
}

Fault external_stream(int device, void* stream, std::int64_t* number) {
  return guarded([&] {
    const auto given = static_cast<cudaStream_t>(stream);
    const auto index = static_cast<c10::DeviceIndex>(device);
    *number = c10::cuda::getStreamFromExternal(given == cudaStreamLegacy ? nullptr : given, index).id();
  });
}

Fault watch_memory(void (*observe)(const char* description)) {
  return guarded([&] { observe_refusals(observe); });
}

Fault make_unique_id(char* id) {
  static_assert(sizeof(ncclUniqueId) == kUniqueIdBytes);
  return guarded([&] {
    ncclUniqueId made;
    check(ncclGetUniqueId(&made), "ncclGetUniqueId");
    std::memcpy(id, &made, sizeof(made));
  });
}

Fault open(int device, const char* id, int ranks, int rank, Link** link) {
  return guarded([&] {
    ncclUniqueId copy;
    std::memcpy(&copy, id, sizeof(copy));
    *link = new Link(device, copy, ranks, rank);
  });
}

Fault close(Link* link) {
  return guarded([&] { delete link; });
}

/// A member of Link as a function of the interface.
template <auto kMember>
struct Guarded;
template <class... Arguments, void (Link::*kMember)(Arguments...)>
struct Guarded<kMember> {
  static Fault call(Link* link, Arguments... arguments) {
    return guarded([&] { (link->*kMember)(arguments...); });
  }
};

/// Memory that LibTorch has cached is of no use to others.
void free_cached_memory() {
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  c10::cuda::CUDACachingAllocator::emptyCache();
}

Fault allocate(Link* link, std::size_t bytes, void** memory, void** registration) {
  return guarded([&] {
    const auto is_full = [](const std::exception& error) {
      return std::strstr(error.what(), "out of memory") != nullptr;
    };
    try {
      *memory = link->allocate(bytes, registration);
      return;
    } catch (const std::exception& error) {
      if (!is_full(error)) throw;
    }
    try {
      free_cached_memory();
      *memory = link->allocate(bytes, registration);
    } catch (const std::exception& error) {
      if (is_full(error)) throw std::runtime_error(describe_refusal(bytes));
      throw;
    }
  });
}

Fault use_stream(int device) {
  return guarded([&] {
    choose(device);
    const auto index = static_cast<c10::DeviceIndex>(device);
    if (c10::cuda::getCurrentCUDAStream(index) != c10::cuda::getDefaultCUDAStream(index)) return;
    // Everything that was queued on the default stream so far, such as initial values, comes first.
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, index));
  });
}

/// LibTorch's own clean-up ends where CUDA refuses the end of a capture: its allocators would go on to allocate from
/// the pool of the graph, and its generator to draw numbers for it.
void clean_up_failed_capture(Graph& graph) noexcept {
  const auto is_done = [](auto step) {
    try {
      step();
      return true;
    } catch (const std::exception&) {  // that part of the capture had not begun, or had ended
      return false;
    }
  };
  if (is_done([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(graph.device, graph.pool); })) {
    is_done([&] { c10::cuda::CUDACachingAllocator::releasePool(graph.device, graph.pool); });
  }
  at::HostAllocator* const host = at::getHostAllocator(at::kCUDA);
  if (is_done([&] { host->end_allocate_to_pool(graph.pool); })) is_done([&] { host->release_pool(graph.pool); });
  is_done([&] {
    at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(graph.device);
    generator.graphsafe_set_state(graph.generator);
  });
}

/// Blocks that LibTorch has cached cannot serve the pool of a graph, and cannot be freed while it is recorded. Other
/// threads, such as the one that watches NCCL, continue to ask for their events.
Fault begin_capture(int device, const Graph* beside, Graph** graph) {
  return guarded([&] {
    choose(device);
    free_cached_memory();
    auto made = std::make_unique<Graph>();
    made->device = static_cast<c10::DeviceIndex>(device);
    made->pool = beside != nullptr ? beside->pool : at::cuda::graph_pool_handle();
    made->generator = at::cuda::detail::getDefaultCUDAGenerator(made->device).clone();
    try {
      made->recorded.capture_begin(made->pool, cudaStreamCaptureModeThreadLocal);
    } catch (...) {
      clean_up_failed_capture(*made);
      throw;
    }
    *graph = made.release();
  });
}

Fault end_capture(Graph* graph) {
  return guarded([&] {
    try {
      graph->recorded.capture_end();
    } catch (...) {
      clean_up_failed_capture(*graph);
      throw;
    }
  });
}

Fault draw_offset(Graph* graph, std::uint64_t* offset) {
  return guarded([&] { *offset = graph->recorded.draws().offset_intragraph_; });
}

Fault set_draw_offset(Graph* graph, std::uint64_t offset) {
  return guarded([&] {
    auto& place = graph->recorded.draws().offset_intragraph_;  // its type depends on the version of LibTorch
    place = static_cast<std::remove_reference_t<decltype(place)>>(offset);
  });
}

Fault launch(Graph* graph) {
  return guarded([&] { graph->recorded.replay(); });
}

Fault destroy(Graph* graph) {
  return guarded([&] { delete graph; });
}

ModuleApi make_api() {
  ModuleApi api{.version = kApiVersion,
                .device_count = 0,
                .nccl_compiled = NCCL_VERSION_CODE,
                .nccl_loaded = 0,
                .use_device = use_device,
                .locate = locate,
                .external_stream = external_stream,
                .watch_memory = watch_memory,
                .make_unique_id = make_unique_id,
                .open = open,
                .poll = Guarded<&Link::poll>::call,
                .finalize = Guarded<&Link::finalize>::call,
                .abort = Guarded<&Link::abort>::call,
                .close = close,
                .allocate = allocate,
                .release = Guarded<&Link::release>::call,
                .all_reduce = Guarded<&Link::all_reduce>::call,
                .broadcast = Guarded<&Link::broadcast>::call,
                .all_gather = Guarded<&Link::all_gather>::call,
                .reduce_scatter = Guarded<&Link::reduce_scatter>::call,
                .mark = Guarded<&Link::mark>::call,
                .await = Guarded<&Link::await>::call,
                .is_over = Guarded<&Link::is_over>::call,
                .drop = Guarded<&Link::drop>::call,
                .follow = Guarded<&Link::follow_current_stream>::call,
                .follow_event = Guarded<&Link::follow_event>::call,
                .use_stream = use_stream,
                .begin_capture = begin_capture,
                .draw_offset = draw_offset,
                .set_draw_offset = set_draw_offset,
                .end_capture = end_capture,
                .launch = launch,
                .destroy = destroy};
  check(cudaGetDeviceCount(&api.device_count), "cudaGetDeviceCount");
  check(ncclGetVersion(&api.nccl_loaded), "ncclGetVersion");
  return api;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const ModuleApi* lockstep_gpu_open(std::uint32_t version,
                                                                                     Fault* fault) {
  static ModuleApi api;
  *fault = guarded([&] {
    if (version != kApiVersion) {
      throw std::runtime_error("lockstep_gpu.so implements version " + std::to_string(kApiVersion) +
                               " of its interface, but the program needs version " + std::to_string(version) +
                               "; build both from the same sources");
    }
    if (api.version == 0) api = make_api();
  });
  return *fault == nullptr ? &api : nullptr;
}

}  // namespace lockstep::mpi::gpu
