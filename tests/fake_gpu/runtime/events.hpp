// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "fake_gpu/runtime/streams.hpp"

namespace lockstep::fake_gpu {

/// A moment of a stream, and what is before it.
struct EventMark {
  QueuePoint point;
  VectorClock clock;
  std::shared_ptr<Instant> instant;
};

struct FakeEvent {
  int device = 0;
  unsigned flags = cudaEventDefault;
  std::shared_ptr<EventMark> mark;         ///< null if it was never recorded, or last in a capture
  std::shared_ptr<StreamCapture> capture;  ///< capture in which it was last recorded
  std::vector<std::size_t> frontier;       ///< nodes that it includes then
};

FakeEvent& make_event(int device, unsigned flags);
void destroy(FakeEvent& event);

/// @return  null for a handle that is not valid
FakeEvent* find_event(cudaEvent_t handle);

cudaError_t record_event(FakeEvent& event, FakeStream& stream, Lock& lock);

/// Later work of `stream` comes after what `event` includes now.
cudaError_t wait_in_stream(FakeStream& stream, const FakeEvent& event, Lock& lock);

/// @return  cudaErrorNotReady if it is not over
cudaError_t query_event(const FakeEvent& event);
cudaError_t wait_on_host(const FakeEvent& event, Lock& lock);
cudaError_t elapsed_ms(const FakeEvent& begin, const FakeEvent& end, float* milliseconds);

}  // namespace lockstep::fake_gpu
