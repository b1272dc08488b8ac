// SPDX-License-Identifier: BSD-3-Clause
// What CUDA prohibits while a stream is captured, rule by rule: waits, queries, allocations and copies.
#include "fake_gpu/rules/capture_rule.hpp"

namespace lockstep::fake_gpu {
namespace capture_test {

TEST_F(CaptureRule, AStreamSaysThatItIsCaptured) {
  EXPECT_EQ(status(stream_), cudaStreamCaptureStatusNone);
  EXPECT_FALSE(is_capturing(stream_));
  begin(stream_);
  EXPECT_EQ(status(stream_), cudaStreamCaptureStatusActive);
  EXPECT_TRUE(is_capturing(stream_));
  EXPECT_EQ(status(other_), cudaStreamCaptureStatusNone);
  EXPECT_EQ(end(stream_), cudaSuccess);
  EXPECT_EQ(status(stream_), cudaStreamCaptureStatusNone);
}

TEST_F(CaptureRule, EachCaptureHasAnIdOfItsOwn) {
  unsigned long long ids[2] = {0, 0};
  for (unsigned long long& id : ids) {
    begin(stream_);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    EXPECT_EQ(cudaStreamGetCaptureInfo(stream_, &status, &id, nullptr, nullptr, nullptr, nullptr), cudaSuccess);
    EXPECT_EQ(end(stream_), cudaSuccess);
  }
  EXPECT_NE(ids[0], ids[1]);
}

// ---- waits and queries

TEST_F(CaptureRule, NoWaitForACapturedStream) {
  begin(stream_);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorStreamCaptureUnsupported);
  expect_invalidated(stream_);
}

TEST_F(CaptureRule, NoQueryOfACapturedStream) {
  begin(stream_);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorStreamCaptureUnsupported);
  expect_invalidated(stream_);
}

TEST_F(CaptureRule, NoWaitForACapturedEvent) {
  const TestEvent event;
  begin(stream_);
  EXPECT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), cudaErrorCapturedEvent);
  expect_invalidated(stream_);
}

TEST_F(CaptureRule, NoQueryOfACapturedEvent) {
  const TestEvent event;
  begin(stream_);
  EXPECT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorCapturedEvent);
  expect_invalidated(stream_);
}

TEST_F(CaptureRule, NoQueryOfACapturedEventInARelaxedThread) {
  const TestEvent event;
  begin(stream_, cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorCapturedEvent);
  expect_invalidated(stream_);
}

TEST_F(CaptureRule, NoWaitForTheDevice) {
  begin(stream_, cudaStreamCaptureModeRelaxed);  // whatever the mode
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
  expect_invalidated(stream_);
}

TEST_F(CaptureRule, NoWaitForTheDeviceInAnotherThread) {
  begin(stream_);
  EXPECT_EQ(in_other_thread([] { return cudaDeviceSynchronize(); }), cudaErrorStreamCaptureUnsupported);
  expect_invalidated(stream_);
}

// ---- unsafe calls, by the modes of the capture and of the thread

TEST_F(CaptureRule, NoAllocationInTheThreadOfACapture) {
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
    begin(stream_, mode);
    EXPECT_EQ(allocate(), cudaErrorStreamCaptureUnsupported);
    expect_invalidated(stream_);
  }
}

TEST_F(CaptureRule, NoFreeingInTheThreadOfACapture) {
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
  begin(stream_);
  EXPECT_EQ(cudaFree(memory), cudaErrorStreamCaptureUnsupported);
  expect_invalidated(stream_);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(CaptureRule, NoAllocationOfPinnedMemoryInTheThreadOfACapture) {
  void* memory = nullptr;
  begin(stream_);
  EXPECT_EQ(cudaHostAlloc(&memory, 16, cudaHostAllocDefault), cudaErrorStreamCaptureUnsupported);
  expect_invalidated(stream_);
}

TEST_F(CaptureRule, NoQueryOfAnotherEventInTheThreadOfACapture) {
  const TestEvent event;
  EXPECT_EQ(cudaEventRecord(event, other_), cudaSuccess);
  begin(stream_);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorStreamCaptureUnsupported);
  expect_invalidated(stream_);
}

TEST_F(CaptureRule, NoWaitForAnotherStreamInTheThreadOfACapture) {
  begin(stream_);
  EXPECT_EQ(cudaStreamSynchronize(other_), cudaErrorStreamCaptureUnsupported);
  expect_invalidated(stream_);
}

TEST_F(CaptureRule, ARelaxedCaptureAllowsAllocations) {
  begin(stream_, cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(allocate(), cudaSuccess);
  EXPECT_EQ(end(stream_), cudaSuccess);
}

TEST_F(CaptureRule, ARelaxedThreadMayAllocate) {
  begin(stream_, cudaStreamCaptureModeGlobal);
  auto mode = cudaStreamCaptureModeRelaxed;
  EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);  // the mode that a thread begins with
  EXPECT_EQ(allocate(), cudaSuccess);
  EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(end(stream_), cudaSuccess);
}

TEST_F(CaptureRule, AGlobalCaptureProhibitsAllocationsInOtherThreads) {
  begin(stream_, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(in_other_thread(allocate), cudaErrorStreamCaptureUnsupported);
  expect_invalidated(stream_);
}

TEST_F(CaptureRule, AThreadLocalCaptureAllowsAllocationsInOtherThreads) {
  begin(stream_, cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(in_other_thread(allocate), cudaSuccess);
  EXPECT_EQ(end(stream_), cudaSuccess);
}

TEST_F(CaptureRule, AThreadLocalThreadIgnoresCapturesOfOthers) {
  begin(stream_, cudaStreamCaptureModeGlobal);
  const auto call = [] {
    auto mode = cudaStreamCaptureModeThreadLocal;
    EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
    return allocate();
  };
  EXPECT_EQ(in_other_thread(call), cudaSuccess);
  EXPECT_EQ(end(stream_), cudaSuccess);
}

// ---- copies

TEST_F(CaptureRule, NoSynchronousCopy) {
  const Floats values;
  std::vector<float> host = all(0);
  begin(stream_);
  EXPECT_NE(cudaMemcpy(host.data(), values.begin(), 16, cudaMemcpyDeviceToHost), cudaSuccess);
  expect_invalidated(stream_);
}

// Stricter than CUDA's documentation, which does not say what happens: the copy would read the memory at each launch.
TEST_F(CaptureRule, NoCopyOfPageableMemory) {
  const Floats values;
  std::vector<float> host = all(0);
  begin(stream_);
  EXPECT_EQ(cudaMemcpyAsync(values.begin(), host.data(), 16, cudaMemcpyHostToDevice, stream_),
            cudaErrorStreamCaptureUnsupported);
  expect_invalidated(stream_);
}

TEST_F(CaptureRule, CopiesOfPinnedMemoryAreRecorded) {
  const Floats values;
  const PinnedFloats host;
  begin(stream_);
  EXPECT_EQ(cudaMemcpyAsync(values.begin(), host.begin(), 16, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  EXPECT_EQ(end(stream_), cudaSuccess);
}

TEST_F(CaptureRule, NoCallback) {
  begin(stream_);
  const auto callback = [](cudaStream_t, cudaError_t, void*) {};
  EXPECT_EQ(cudaStreamAddCallback(stream_, callback, nullptr, 0), cudaErrorStreamCaptureUnsupported);
  expect_invalidated(stream_);
}

}  // namespace capture_test
}  // namespace lockstep::fake_gpu
