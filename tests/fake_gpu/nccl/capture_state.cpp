// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/nccl/capture_state.hpp"

#include <string>

#include "fake_gpu/nccl/errors.hpp"

namespace lockstep::fake_gpu::nccl {

CommCapture capture_state(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* last = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  std::size_t last_count = 0;
  check(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &last, &edges, &last_count), "cudaStreamGetCaptureInfo");
  if (status == cudaStreamCaptureStatusInvalidated) return {.is_invalidated = true};
  if (status == cudaStreamCaptureStatusNone) return {};
  std::size_t nodes = 0;
  check(cudaGraphGetNodes(graph, nullptr, &nodes), "cudaGraphGetNodes");
  return {.id = id, .nodes = nodes, .last = {last, last + last_count}};
}

void require_unchanged(const CommCapture& called, const NcclOperation& operation) {
  const CommCapture now = capture_state(operation.stream);
  if (now == called || now.is_invalidated || called.is_invalidated) return;
  const std::string what = now.id == called.id ? "more was recorded into its graph"
                           : called.id == 0    ? "a capture of its stream began"
                                               : "the capture of its stream ended";
  break_rule(describe(operation.call) + " was not launched yet when " + what +
                 ". A non-blocking communicator launches from a thread of NCCL's own: wait until " +
                 "ncclCommGetAsyncError returns ncclSuccess before the next call on a captured stream.",
             operation.site);
}

}  // namespace lockstep::fake_gpu::nccl
