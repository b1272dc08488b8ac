// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

namespace lockstep::fake_gpu::nccl {

/// Keeps the collectives of a communicator in the order of their calls, also where they are on different streams: real
/// NCCL has the stream of each wait for the collective before. Streams of one group wait for each other at its begin
/// and at its end. Eager collectives and those of a graph are not ordered with each other, nor are graphs: programs
/// order them by streams.
class LaunchOrder {
 public:
  LaunchOrder() = default;
  LaunchOrder(const LaunchOrder&) = delete;
  LaunchOrder& operator=(const LaunchOrder&) = delete;
  ~LaunchOrder();

  /// Must be called before collectives are queued on `streams.front()`.
  /// @param capture  the id of the capture that all streams belong to; 0 for none
  void begin(const std::vector<cudaStream_t>& streams, unsigned long long capture);
  void end(const std::vector<cudaStream_t>& streams, unsigned long long capture);

  /// Whether the eager collectives are complete.
  bool is_complete() const;

 private:
  struct Last {
    cudaEvent_t event = nullptr;  ///< event after the last collective
    unsigned long long capture = 0;
  };
  Last& last(unsigned long long capture) { return capture == 0 ? eager_ : captured_; }

  Last eager_;
  Last captured_;
};

}  // namespace lockstep::fake_gpu::nccl
