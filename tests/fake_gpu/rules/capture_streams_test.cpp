// SPDX-License-Identifier: BSD-3-Clause
// What CUDA prohibits while a stream is captured, rule by rule: the legacy stream, events, streams that join, begin and
// end.
#include "fake_gpu/rules/capture_rule.hpp"

namespace lockstep::fake_gpu {
namespace capture_streams_test {

class CaptureStreams : public CaptureRule {};

// ---- the legacy stream

TEST_F(CaptureStreams, NoWorkInTheLegacyStreamWhileABlockingStreamIsCaptured) {
  const TestStream blocking(cudaStreamDefault);
  begin(blocking);
  EXPECT_EQ(enqueue(cudaStreamLegacy, "legacy", {}, [] {}), cudaErrorStreamCaptureImplicit);
  expect_invalidated(blocking);
}

TEST_F(CaptureStreams, NoEventInTheLegacyStreamWhileABlockingStreamIsCaptured) {
  const TestStream blocking(cudaStreamDefault);
  const TestEvent event;
  begin(blocking);
  EXPECT_EQ(cudaEventRecord(event, cudaStreamLegacy), cudaErrorStreamCaptureImplicit);
  expect_invalidated(blocking);
}

TEST_F(CaptureStreams, TheLegacyStreamHasNoStatusWhileABlockingStreamIsCaptured) {
  const TestStream blocking(cudaStreamDefault);
  begin(blocking);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  EXPECT_EQ(cudaStreamIsCapturing(cudaStreamLegacy, &status), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(end(blocking), cudaSuccess);  // the question invalidates nothing
}

TEST_F(CaptureStreams, TheLegacyStreamIsFreeWhileANonBlockingStreamIsCaptured) {
  begin(stream_);
  EXPECT_EQ(enqueue(cudaStreamLegacy, "legacy", {}, [] {}), cudaSuccess);
  EXPECT_EQ(end(stream_), cudaSuccess);
}

TEST_F(CaptureStreams, NoCaptureOfTheLegacyStream) {
  EXPECT_EQ(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeThreadLocal),
            cudaErrorStreamCaptureUnsupported);
}

// ---- events from other places

TEST_F(CaptureStreams, NoWaitForAnEventFromBefore) {
  const TestEvent event;
  EXPECT_EQ(cudaEventRecord(event, other_), cudaSuccess);
  begin(stream_);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, event, 0), cudaErrorStreamCaptureIsolation);
  expect_invalidated(stream_);
}

TEST_F(CaptureStreams, NoWaitForAnEventOfAnotherCapture) {
  const TestEvent event;
  begin(stream_);
  begin(other_);
  EXPECT_EQ(cudaEventRecord(event, other_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, event, 0), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(end(stream_), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(end(other_), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureStreams, NoUseOfACapturedEventAfterTheCapture) {
  const TestEvent event;
  begin(stream_);
  EXPECT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  EXPECT_EQ(end(stream_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventSynchronize(event), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(other_, event, 0), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventRecord(event, stream_), cudaSuccess);  // a new record makes it usable
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
}

// ---- streams that join

TEST_F(CaptureStreams, AStreamThatWaitsForACapturedEventIsCaptured) {
  begin(stream_);
  follow(other_, stream_);
  EXPECT_EQ(status(other_), cudaStreamCaptureStatusActive);
  EXPECT_EQ(enqueue(other_, "recorded", {}, [] { ADD_FAILURE() << "it was only recorded"; }), cudaSuccess);
  follow(stream_, other_);
  EXPECT_EQ(end(stream_), cudaSuccess);
  EXPECT_EQ(status(other_), cudaStreamCaptureStatusNone);
}

TEST_F(CaptureStreams, AnInvalidCaptureInvalidatesStreamsThatJoined) {
  begin(stream_);
  follow(other_, stream_);
  EXPECT_EQ(cudaStreamSynchronize(other_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(status(other_), cudaStreamCaptureStatusInvalidated);
  expect_invalidated(stream_);
  EXPECT_EQ(status(other_), cudaStreamCaptureStatusNone);
}

TEST_F(CaptureStreams, AStreamThatJoinedMustBeJoinedAgain) {
  begin(stream_);
  follow(other_, stream_);
  EXPECT_EQ(enqueue(other_, "recorded", {}, [] {}), cudaSuccess);
  EXPECT_EQ(end(stream_), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(status(stream_), cudaStreamCaptureStatusNone);
  EXPECT_EQ(status(other_), cudaStreamCaptureStatusNone);
}

TEST_F(CaptureStreams, AllOfAStreamThatJoinedMustBeJoinedAgain) {
  begin(stream_);
  follow(other_, stream_);
  EXPECT_EQ(enqueue(other_, "recorded", {}, [] {}), cudaSuccess);
  follow(stream_, other_);
  EXPECT_EQ(enqueue(other_, "too late", {}, [] {}), cudaSuccess);
  EXPECT_EQ(end(stream_), cudaErrorStreamCaptureUnjoined);
}

// ---- begin and end

TEST_F(CaptureStreams, NoSecondBegin) {
  begin(stream_);
  EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaErrorIllegalState);
  EXPECT_EQ(end(stream_), cudaSuccess);
}

TEST_F(CaptureStreams, NoEndWithoutABegin) { EXPECT_EQ(end(stream_), cudaErrorIllegalState); }

TEST_F(CaptureStreams, NoEndInAStreamThatJoined) {
  begin(stream_);
  follow(other_, stream_);
  EXPECT_EQ(end(other_), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(end(stream_), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureStreams, NoEndInAnotherThread) {
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
    begin(stream_, mode);
    EXPECT_EQ(in_other_thread([&] { return end(stream_); }), cudaErrorStreamCaptureWrongThread);
    EXPECT_EQ(end(stream_), cudaErrorStreamCaptureInvalidated);
  }
}

TEST_F(CaptureStreams, ARelaxedCaptureEndsInAnyThread) {
  begin(stream_, cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(in_other_thread([&] { return end(stream_); }), cudaSuccess);
}

TEST_F(CaptureStreams, AnotherThreadMayRecord) {
  begin(stream_);
  const auto call = [&] { return enqueue(stream_, "recorded", {}, [] {}); };
  EXPECT_EQ(in_other_thread(call), cudaSuccess);
  EXPECT_EQ(end(stream_), cudaSuccess);
}

}  // namespace capture_streams_test
}  // namespace lockstep::fake_gpu
