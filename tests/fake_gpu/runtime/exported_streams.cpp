// SPDX-License-Identifier: BSD-3-Clause
// Streams and their capture.
#include "fake_gpu/runtime/capture.hpp"
#include "fake_gpu/runtime/devices.hpp"
#include "fake_gpu/runtime/exported.hpp"
#include "fake_gpu/runtime/submission.hpp"

namespace lockstep::fake_gpu {

namespace {

cudaError_t create_stream(cudaStream_t* handle, unsigned flags, int priority) {
  if ((flags & ~static_cast<unsigned>(cudaStreamNonBlocking)) != 0) return noted(cudaErrorInvalidValue);
  return locked([&](Lock&) {
    *handle = handle_of<cudaStream_t>(make_stream(current_device(), flags, priority));
    return device_status();
  });
}

cudaError_t destroy_stream(FakeStream& stream) {
  if (stream.is_legacy) return cudaErrorInvalidResourceHandle;
  if (stream.capture) return refuse_call(stream);
  destroy(stream);
  return cudaSuccess;
}

cudaError_t synchronize(FakeStream& stream, Lock& lock) {
  if (const cudaError_t refusal = refuse_wait(stream); refusal != cudaSuccess) return refusal;
  wait_for(encompassed_by(stream), lock);
  return device_status();
}

cudaError_t query(FakeStream& stream) {
  if (const cudaError_t refusal = refuse_wait(stream); refusal != cudaSuccess) return refusal;
  return are_idle(encompassed_by(stream)) ? device_status() : cudaErrorNotReady;
}

cudaError_t queue_host_function(FakeStream& stream, Work function, Lock& lock) {
  Submission submission{.name = "host function", .ranges = {}, .work = std::move(function), .cost = {}};
  return submit(stream, submission, lock);
}

cudaError_t end(cudaStream_t handle, cudaGraph_t* graph) {
  EndedCapture ended;
  *graph = nullptr;
  return with_stream(handle, [&](FakeStream& stream, Lock&) {
    ended = end_capture(stream);
    if (ended.graph) {
      *graph = handle_of<cudaGraph_t>(*ended.graph);
      keep(std::move(ended.graph));
    }
    return ended.result;
  });
}

}  // namespace

}  // namespace lockstep::fake_gpu

using namespace lockstep::fake_gpu;

extern "C" {

[[gnu::visibility("default")]] cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return create_stream(stream, cudaStreamDefault, 0);
}

[[gnu::visibility("default")]] cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return create_stream(stream, flags, 0);
}

[[gnu::visibility("default")]] cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                                                        int priority) {
  return create_stream(stream, flags, priority);
}

[[gnu::visibility("default")]] cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return with_stream(handle, [](FakeStream& stream, Lock&) { return destroy_stream(stream); });
}

[[gnu::visibility("default")]] cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return with_stream(handle, [&](FakeStream& stream, Lock&) {
    *priority = stream.priority;
    return cudaSuccess;
  });
}

[[gnu::visibility("default")]] cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return with_stream(handle, [&](FakeStream& stream, Lock&) {
    *flags = stream.flags;
    return cudaSuccess;
  });
}

[[gnu::visibility("default")]] cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return with_stream(handle, [](FakeStream& stream, Lock& lock) { return synchronize(stream, lock); });
}

[[gnu::visibility("default")]] cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return with_stream(handle, [](FakeStream& stream, Lock&) { return query(stream); });
}

[[gnu::visibility("default")]] cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t function,
                                                                 void* data, unsigned) {
  return with_stream(handle, [&](FakeStream& stream, Lock& lock) {
    if (stream.capture) return refuse_call(stream);
    return queue_host_function(
        stream, [=] { function(handle, cudaSuccess, data); }, lock);
  });
}

[[gnu::visibility("default")]] cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return with_stream(handle, [&](FakeStream& stream, Lock& lock) {
    return queue_host_function(
        stream, [=] { function(data); }, lock);
  });
}

[[gnu::visibility("default")]] cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  *mode = exchange_capture_mode(*mode);
  return cudaSuccess;
}

[[gnu::visibility("default")]] cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return with_stream(handle, [mode](FakeStream& stream, Lock&) { return begin_capture(stream, mode); });
}

[[gnu::visibility("default")]] cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return end(handle, graph);
}

[[gnu::visibility("default")]] cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return with_stream(handle, [status](FakeStream& stream, Lock&) {
    *status = status_of(stream);
    return refuse_status(stream);
  });
}

[[gnu::visibility("default")]] cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph,
    const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges, std::size_t* count) {
  static thread_local std::vector<cudaGraphNode_t> nodes;  // valid until the next call, as CUDA says
  return with_stream(handle, [&](FakeStream& stream, Lock&) {
    *status = status_of(stream);
    nodes.clear();
    if (stream.capture) {
      Graph& captured = *stream.capture->graph;
      for (const std::size_t node : stream.frontier) nodes.push_back(handle_of<cudaGraphNode_t>(captured.nodes[node]));
      if (id != nullptr) *id = stream.capture->id;
      if (graph != nullptr) *graph = handle_of<cudaGraph_t>(captured);
    }
    if (dependencies != nullptr) *dependencies = nodes.data();
    if (edges != nullptr) *edges = nullptr;
    if (count != nullptr) *count = nodes.size();
    return refuse_status(stream);
  });
}

}  // extern "C"
