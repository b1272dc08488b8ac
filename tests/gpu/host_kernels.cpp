// SPDX-License-Identifier: BSD-3-Clause
// What tests of the fake GPU's rules ask of its runtime, on any CUDA: functions of the host take the places of kernels.
// Without a GPU, every case is skipped.
#include <gtest/gtest.h>

#include <list>
#include <utility>

#include "fake_gpu/fake_gpu.hpp"

namespace lockstep::fake_gpu {

namespace {

class NeedsAGpu : public ::testing::Environment {
 public:
  void SetUp() override {
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) GTEST_SKIP() << cudaGetErrorString(error);
  }
};

const ::testing::Environment* const kNeedsAGpu = ::testing::AddGlobalTestEnvironment(new NeedsAGpu);

void call(void* work) { (*static_cast<Work*>(work))(); }

}  // namespace

cudaError_t enqueue(cudaStream_t stream, const char* /*name*/, std::vector<Range> /*ranges*/, Work work) {
  static std::list<Work> kept;  // a graph may call it at any time
  kept.push_back(std::move(work));
  return cudaLaunchHostFunc(stream, call, &kept.back());
}

void* address(const void* memory) { return const_cast<void*>(memory); }

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status == cudaStreamCaptureStatusActive;
}

}  // namespace lockstep::fake_gpu
