// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "fake_gpu/nccl/call.hpp"

namespace lockstep::fake_gpu::nccl {

/// How far the capture is that a stream takes part in.
struct CommCapture {
  unsigned long long id = 0;  ///< 0: the stream is not captured
  bool is_invalidated = false;
  std::size_t nodes = 0;                   ///< nodes of the whole graph, with those of other streams
  std::vector<cudaGraphNode_t> last = {};  ///< the next node of this stream follows them

  bool operator==(const CommCapture&) const = default;
};

/// @throws Refusal  CUDA refuses the question
CommCapture capture_state(cudaStream_t stream);

/// Ends the process where the stream's capture is no longer as it was when the operation was called.
///
/// With a non-blocking communicator, real NCCL launches from a thread of its own. That thread adds nodes to the graph,
/// and a graph must not be changed by two threads at a time: until ncclCommGetAsyncError has returned ncclSuccess,
/// nothing else may be recorded. The same holds for a capture that begins or ends meanwhile.
void require_unchanged(const CommCapture& called, const NcclOperation& operation);

}  // namespace lockstep::fake_gpu::nccl
