// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "fake_gpu/runtime/clock.hpp"
#include "fake_gpu/runtime/order.hpp"
#include "fake_gpu/runtime/queue.hpp"

namespace lockstep::fake_gpu {

struct StreamCapture;

struct FakeStream {
  int device = 0;
  unsigned flags = cudaStreamDefault;
  int priority = 0;
  bool is_legacy = false;  ///< the stream without a name, which blocking streams wait for, and it for them

  Timeline timeline = new_timeline();
  VectorClock clock;  ///< clock: what is before the next operation
  Queue queue;

  std::shared_ptr<StreamCapture> capture;  ///< null unless the stream is captured
  std::vector<std::size_t> frontier;       ///< nodes that the next one comes after, while the stream is captured
};

FakeStream& make_stream(int device, unsigned flags, int priority);

/// Work that is queued still runs.
void destroy(FakeStream& stream);

/// @return  null for a handle that is not valid
FakeStream* find_stream(cudaStream_t handle);
std::vector<FakeStream*> streams_of(int device);

/// The blocking streams of its device for a legacy stream, the legacy stream for a blocking one: work that is queued
/// there comes before later work of `stream`.
std::vector<FakeStream*> implied_by(const FakeStream& stream);

/// A stream and those that a wait for it, a query or an event includes.
std::vector<FakeStream*> encompassed_by(FakeStream& stream);

/// Gives `stream` the clock of its next operation.
/// @return  what that operation waits for, beyond earlier ones of the stream
std::vector<QueuePoint> order_next(FakeStream& stream);

/// Waits until all work that these streams have now is over.
void wait_for(const std::vector<FakeStream*>& streams, Lock& lock);

/// Waits without learning that the work is over.
void await_unnoticed(const std::vector<FakeStream*>& streams, Lock& lock);

/// Whether these streams have done all their work, as a query finds; the host knows then.
bool are_idle(const std::vector<FakeStream*>& streams);

}  // namespace lockstep::fake_gpu
