// SPDX-License-Identifier: BSD-3-Clause
// What a program and lockstep_gpu.so say to each other: plain types and functions, so that the program needs neither
// CUDA nor NCCL to be built or to run. No exception crosses.
#pragma once

#include <lockstep/core/tensor.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep::mpi::gpu {

/// Null: done. Otherwise what went wrong, in the words of CUDA or NCCL; valid until this thread's next call.
using Fault = const char*;

/// How a fault begins that is an error of a kernel or of the hardware, whatever call reports it. The process cannot use
/// the GPU any more.
inline constexpr const char* kDeviceFault = "the GPU failed: ";

inline constexpr std::size_t kUniqueIdBytes = 128;
inline constexpr std::uint32_t kApiVersion = 6;  ///< grows with every change of this file

struct Link;   ///< one rank's end of an NCCL communicator, with a stream of its own
struct Event;  ///< a point in that stream
struct Graph;  ///< recorded work of a stream, to be launched as one operation (a CUDA graph)

struct DeviceFacts {
  char name[256] = {};
  char uuid[37] = {};    ///< UUID of the GPU, or of the part of it that this process sees
  char bus_id[20] = {};  ///< PCI bus ID of the GPU on its host; the parts of a GPU share it
  int previous = 0;      ///< device of the calling thread until now
};

/// The functions of the module. "The current stream" is the one on which LibTorch queues the calling thread's work.
///
/// Operations of a link queue up behind the work that the current stream has so far, and return before they are done.
/// Most leave the link under way for a while: `poll` until it is not before the next call on that link. One thread at a
/// time uses a link; another one may call `poll`, `is_over` and `abort`.
struct ModuleApi {
  std::uint32_t version = 0;
  std::int32_t device_count = 0;
  std::int32_t nccl_compiled = 0;  ///< NCCL_VERSION_CODE of the header
  std::int32_t nccl_loaded = 0;    ///< version of the library that this process has loaded

  /// Makes a device that of the calling thread.
  Fault (*use_device)(int device, DeviceFacts* facts) = nullptr;
  /// @param device   receives the GPU that has some memory; -1 = it is memory of the host
  /// @param is_host  receives whether the host can access it, too
  Fault (*locate)(const void* memory, int* device, bool* is_host) = nullptr;
  /// LibTorch's number of a stream that the program has made on a device.
  /// @param stream  a cudaStream_t; null = the default stream
  Fault (*external_stream)(int device, void* stream, std::int64_t* number) = nullptr;
  /// Has `observe` called when LibTorch is refused memory of a GPU, in the thread that requested it, with a
  /// description of the memory in use. The first call initializes LibTorch's half for CUDA; later calls have no effect.
  Fault (*watch_memory)(void (*observe)(const char* description)) = nullptr;

  /// @param id  kUniqueIdBytes, for all ranks of one communicator
  Fault (*make_unique_id)(char* id) = nullptr;
  /// Begins to connect this rank with the others.
  Fault (*open)(int device, const char* id, int ranks, int rank, Link** link) = nullptr;
  Fault (*poll)(Link* link, bool* is_under_way) = nullptr;
  /// Begins to end a link in good order, together with the peers; `close` follows.
  Fault (*finalize)(Link* link) = nullptr;
  /// Ends operations under way, whatever the peers do, and then the link; `close` follows. May hang.
  Fault (*abort)(Link* link) = nullptr;
  Fault (*close)(Link* link) = nullptr;

  /// Zeroed memory, known to NCCL.
  Fault (*allocate)(Link* link, std::size_t bytes, void** memory, void** registration) = nullptr;
  /// Waits until the device is idle. A link that was aborted may be named here, too.
  Fault (*release)(Link* link, void* memory, void* registration) = nullptr;

  Fault (*all_reduce)(Link* link, void* values, std::size_t count, DType dtype, ReduceOp op) = nullptr;
  Fault (*broadcast)(Link* link, void* memory, std::size_t bytes, int root) = nullptr;
  Fault (*all_gather)(Link* link, const void* mine, void* all, std::size_t bytes) = nullptr;
  /// Gives rank r the reduced slice r.
  /// @param slices  of this rank's values, by rank, one behind the other
  /// @param counts  elements of each, the same on all ranks
  Fault (*reduce_scatter)(Link* link, const void* const* slices, const std::size_t* counts, void* mine, DType dtype,
                          ReduceOp op) = nullptr;

  /// The point behind all that was queued on the link. Give it back with `drop`.
  Fault (*mark)(Link* link, Event** event) = nullptr;
  /// Has the current stream wait for it; the calling thread does not.
  Fault (*await)(Link* link, Event* event) = nullptr;
  Fault (*is_over)(Link* link, Event* event, bool* yes) = nullptr;
  Fault (*drop)(Link* link, Event* event) = nullptr;
  /// Queues nothing, but puts the link's next mark behind the work that the current stream has so far.
  Fault (*follow)(Link* link) = nullptr;
  /// Has the operations that come next on the link wait for an event of any link.
  Fault (*follow_event)(Link* link, Event* event) = nullptr;

  /// Gives the calling thread, for good, a current stream that can be captured, if it has the default one, which
  /// cannot.
  Fault (*use_stream)(int device) = nullptr;
  /// Waits until the device is idle: a captured stream cannot wait for an event from before. Until `end_capture`, work
  /// that is queued on the current stream is recorded and not done. A call that waits for the GPU fails, and the
  /// capture with it. No event may be asked whether it is over in the meantime.
  /// @param beside  null, or a graph of which the new one uses the memory, too. They must be launched one after the
  ///                other, in the order in which they were recorded; each can be launched several times in succession
  Fault (*begin_capture)(int device, const Graph* beside, Graph** graph) = nullptr;
  /// Valid in a capture: the place of LibTorch's generator in the random numbers of the graph, and a return to an
  /// earlier one.
  Fault (*draw_offset)(Graph* graph, std::uint64_t* offset) = nullptr;
  Fault (*set_draw_offset)(Graph* graph, std::uint64_t offset) = nullptr;
  /// @return  not null: the graph can only be destroyed
  Fault (*end_capture)(Graph* graph) = nullptr;
  /// Queues the recorded work on the current stream. Random numbers are drawn by the current state of LibTorch's
  /// generator.
  Fault (*launch)(Graph* graph) = nullptr;
  Fault (*destroy)(Graph* graph) = nullptr;
};

/// The one function that the module exports, as `lockstep_gpu_open`.
/// @param fault  why the result is null: no GPU, or another version of this file
using OpenModule = const ModuleApi* (*)(std::uint32_t version, Fault* fault);
inline constexpr const char* kOpenModule = "lockstep_gpu_open";

}  // namespace lockstep::mpi::gpu
