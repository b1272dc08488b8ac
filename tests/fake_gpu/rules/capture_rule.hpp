// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <future>

#include "fake_gpu/rules/support.hpp"

namespace lockstep::fake_gpu {

/// A rule of stream capture. A prohibited call fails with its own error, and invalidates the capture: what is recorded
/// afterwards, and its end, fail too.
class CaptureRule : public FakeGpuRule {
 protected:
  void begin(cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    EXPECT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
  }
  /// Ends a capture and returns how it ended.
  cudaError_t end(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    const cudaError_t result = cudaStreamEndCapture(stream, &graph);
    EXPECT_EQ(graph != nullptr, result == cudaSuccess);
    if (graph != nullptr) {
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
    return result;
  }
  /// Expects that the capture is invalid, and that the stream is as before once it is ended.
  void expect_invalidated(cudaStream_t stream) {
    EXPECT_EQ(status(stream), cudaStreamCaptureStatusInvalidated);
    EXPECT_EQ(enqueue(stream, "later", {}, [] {}), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(end(stream), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(status(stream), cudaStreamCaptureStatusNone);
    EXPECT_EQ(enqueue(stream, "afterwards", {}, [] {}), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    cudaGetLastError();
  }
  static cudaStreamCaptureStatus status(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    EXPECT_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
    return status;
  }
  static cudaError_t in_other_thread(const std::function<cudaError_t()>& call) {
    return std::async(std::launch::async, call).get();
  }
  static cudaError_t allocate() {
    void* memory = nullptr;
    const cudaError_t result = cudaMalloc(&memory, 16);
    if (result == cudaSuccess) {
      EXPECT_EQ(cudaFree(memory), cudaSuccess);
    }
    return result;
  }

  void TearDown() override { cudaGetLastError(); }

  const TestStream stream_;
  const TestStream other_;
};

}  // namespace lockstep::fake_gpu
