// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "fake_gpu/runtime/streams.hpp"

namespace lockstep::fake_gpu {

/// Work for a stream.
struct Submission {
  const char* name = nullptr;
  std::vector<Range> ranges;
  Work work;
  Counters cost;  ///< counted when it is queued
};

/// Queues work, or records it if the stream is captured. What it refuses stays in `submission`.
cudaError_t submit(FakeStream& stream, Submission& submission, Lock& lock);

}  // namespace lockstep::fake_gpu
