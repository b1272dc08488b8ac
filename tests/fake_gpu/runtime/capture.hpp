// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <set>
#include <thread>

#include "fake_gpu/runtime/events.hpp"
#include "fake_gpu/runtime/graphs.hpp"
#include "fake_gpu/runtime/streams.hpp"

/// Stream capture, by the rules of CUDA's programming guide ("Stream Capture") and of the descriptions of
/// cudaStreamBeginCapture, cudaStreamEndCapture and cudaThreadExchangeStreamCaptureMode. A call that a rule prohibits
/// invalidates the captures that it disturbs.
namespace lockstep::fake_gpu {

struct StreamCapture {
  unsigned long long id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  FakeStream* origin = nullptr;
  std::set<FakeStream*> streams;  ///< that are captured
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  bool is_invalid = false;
  bool is_ended = false;
};

/// A capture that has ended. The graph is null unless it can be used.
struct EndedCapture {
  cudaError_t result = cudaSuccess;
  std::unique_ptr<Graph> graph;
  std::unique_ptr<Graph> discarded;  ///< destroyed by the caller once the lock is released
};

cudaError_t begin_capture(FakeStream& stream, cudaStreamCaptureMode mode);
EndedCapture end_capture(FakeStream& stream);
cudaStreamCaptureStatus status_of(const FakeStream& stream);

/// @return  the mode before
cudaStreamCaptureMode exchange_capture_mode(cudaStreamCaptureMode mode);

/// Adds a node to the graph of a captured stream.
void record(FakeStream& stream, Submission submission);

/// `stream` comes after an event that was recorded in a capture, and takes part in it from now on.
cudaError_t join(FakeStream& stream, const FakeEvent& event);

/// A call that queues something in a stream: not after a device error, in a capture that is invalid, or in the legacy
/// stream while a blocking stream is captured.
cudaError_t refuse_use(const FakeStream& stream);

/// The legacy stream has no state to ask for while a blocking stream is captured. Asking invalidates nothing.
cudaError_t refuse_status(const FakeStream& stream);

/// A captured stream cannot wait for what was recorded outside of its capture.
cudaError_t refuse_event_from_before(const FakeStream& stream);

/// A call that cannot become a node of a graph.
cudaError_t refuse_call(const FakeStream& stream);

/// A host wait or a query.
cudaError_t refuse_wait(const FakeStream& stream);
cudaError_t refuse_wait(const FakeEvent& event);
cudaError_t refuse_wait_for_device(int device);

/// A call that is not seen by captures, such as an allocation, depending on the mode of the thread and of the captures.
cudaError_t refuse_unsafe_call();

}  // namespace lockstep::fake_gpu
