// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "fake_gpu/fake_gpu.hpp"
#include "fake_gpu/runtime/lock.hpp"

/// Queues of operations, and who runs them: a worker each, or the caller (schedule eager).
namespace lockstep::fake_gpu {

struct Queue;

/// A place in a queue, which is over once `index` operations are done. Queues are never destroyed.
struct QueuePoint {
  Queue* queue = nullptr;
  std::uint64_t index = 0;
};

using Instant = std::chrono::steady_clock::time_point;

struct QueuedOperation {
  const char* name = nullptr;
  Work work;                            ///< may be empty
  std::vector<QueuePoint> after;        ///< `after` in other queues
  std::shared_ptr<Instant> is_over_at;  ///< may be null
};

struct Queue {
  std::deque<QueuedOperation> operations;  ///< that have not begun
  std::uint64_t queued = 0;
  std::uint64_t done = 0;
  std::uint64_t wanted = 0;  ///< the host needs the operations up to this one (schedule lazy)
  bool is_running = false;
  bool is_closed = false;
  std::condition_variable changed;
  std::minstd_rand random;
};

[[nodiscard]] QueuePoint end_of(Queue& queue);
[[nodiscard]] bool is_over(const QueuePoint& point);

void push(Queue& queue, QueuedOperation operation, Lock& lock);

/// The host wants to know about a point, which a lazy GPU takes as the moment to begin.
void want(const QueuePoint& point);
void await(const std::vector<QueuePoint>& points, Lock& lock);

/// No operation is queued any more.
void close(Queue& queue);

/// The error of an operation, which stays; cudaErrorCudartUnloading once the process ends.
cudaError_t device_status();

}  // namespace lockstep::fake_gpu
