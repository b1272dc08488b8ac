// SPDX-License-Identifier: BSD-3-Clause
// The order of work: streams, events, waits of the host, and the legacy stream.
#include "fake_gpu/rules/support.hpp"

namespace lockstep::fake_gpu {
namespace order_test {

class Order : public FakeGpuRule {};

TEST_F(Order, WorkOfOneStreamRunsInTheOrderOfTheCalls) {
  const TestStream stream;
  const Floats sum;
  const Floats one;
  fill_slowly(stream, sum, 1);
  fill(stream, one, 1);
  add(stream, sum, one);
  add(stream, one, sum);
  EXPECT_EQ(sum.values(), all(2));
  EXPECT_EQ(one.values(), all(3));
}

TEST_F(Order, AStreamWaitsForAnEvent) {
  const TestStream first;
  const TestStream second;
  const Floats sum;
  const Floats other;
  fill_slowly(first, sum, 1);
  fill(second, other, 2);
  follow(second, first);
  add(second, other, sum);
  EXPECT_EQ(other.values(), all(3));
}

TEST_F(Order, AWaitIsForTheLastRecordBeforeIt) {
  const TestStream first;
  const TestStream second;
  const Floats values;
  const TestEvent event;
  EXPECT_EQ(cudaEventRecord(event, first), cudaSuccess);
  fill_slowly(first, values, 1);
  EXPECT_EQ(cudaEventRecord(event, first), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(second, event, 0), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, second), cudaSuccess);  // changes nothing for the wait
  add(second, values, values);
  EXPECT_EQ(values.values(), all(2));
}

TEST_F(Order, AnEventThatWasNeverRecordedIsComplete) {
  const TestStream stream;
  const TestEvent event;
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream, event, 0), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
}

TEST_F(Order, TheHostWaitsForAStream) {
  const TestStream stream;
  const TestStream reader;
  const Floats values;
  fill_slowly(stream, values, 1);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  add(reader, values, values);
  EXPECT_EQ(values.values(), all(2));
}

TEST_F(Order, TheHostWaitsForAnEvent) {
  const TestStream stream;
  const TestStream reader;
  const Floats values;
  const TestEvent event;
  fill_slowly(stream, values, 1);
  EXPECT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  add(reader, values, values);
  EXPECT_EQ(values.values(), all(2));
}

TEST_F(Order, TheHostWaitsForTheDevice) {
  const TestStream first;
  const TestStream second;
  const TestStream reader;
  const Floats a;
  const Floats b;
  fill_slowly(first, a, 1);
  fill_slowly(second, b, 2);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  add(reader, a, b);
  EXPECT_EQ(a.values(), all(3));
}

TEST_F(Order, AQueryIsNotReadyWhileWorkIsUnderWay) {
  if (is_schedule("eager")) GTEST_SKIP() << "no work is under way when a call returns";
  Barrier barrier;
  const TestStream stream;
  const TestEvent event;
  barrier.queue(stream);
  EXPECT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  cudaGetLastError();
  barrier.open();
  EXPECT_TRUE(comes_true([&] { return cudaEventQuery(event) == cudaSuccess; }));
  EXPECT_TRUE(comes_true([&] { return cudaStreamQuery(stream) == cudaSuccess; }));
  cudaGetLastError();
}

TEST_F(Order, AQueryThatSucceedsIsAWait) {
  const TestStream stream;
  const TestStream reader;
  const Floats values;
  const TestEvent event;
  fill_slowly(stream, values, 1);
  EXPECT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  ASSERT_TRUE(comes_true([&] { return cudaEventQuery(event) == cudaSuccess; }));
  cudaGetLastError();
  add(reader, values, values);
  EXPECT_EQ(values.values(), all(2));
}

TEST_F(Order, AQueryThatIsNotReadyIsNone) {
  if (is_schedule("eager")) GTEST_SKIP() << "no work is under way when a call returns";
  expect_broken("'look' reads .*'fill' writes", [] {
    Barrier barrier;
    const TestStream stream;
    const TestStream reader;
    const Floats values;
    const TestEvent event;
    barrier.queue(stream);
    fill(stream, values, 1);
    EXPECT_EQ(cudaEventRecord(event, stream), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
    look(reader, values);
  });
}

TEST_F(Order, BlockingStreamsWaitForTheLegacyStream) {
  const TestStream blocking(cudaStreamDefault);
  const Floats values;
  fill_slowly(cudaStreamLegacy, values, 1);
  add(blocking, values, values);
  EXPECT_EQ(values.values(), all(2));
}

TEST_F(Order, TheLegacyStreamWaitsForBlockingStreams) {
  const TestStream first(cudaStreamDefault);
  const TestStream second(cudaStreamDefault);
  const Floats a;
  const Floats b;
  fill_slowly(first, a, 1);
  fill_slowly(second, b, 2);
  add(nullptr, a, b);
  EXPECT_EQ(a.values(), all(3));
}

// Work of two blocking streams with work of the legacy stream in between is ordered by it.
TEST_F(Order, TheLegacyStreamOrdersBlockingStreams) {
  const TestStream first(cudaStreamDefault);
  const TestStream second(cudaStreamDefault);
  const Floats values;
  const Floats other;
  fill_slowly(first, values, 1);
  fill(nullptr, other, 0);
  add(second, values, values);
  EXPECT_EQ(values.values(), all(2));
}

TEST_F(Order, BlockingStreamsDoNotWaitForEachOther) {
  expect_broken("'look' reads .*'fill' writes", [] {
    const TestStream first(cudaStreamDefault);
    const TestStream second(cudaStreamDefault);
    const Floats values;
    fill(first, values, 1);
    look(second, values);
  });
}

TEST_F(Order, NonBlockingStreamsDoNotWaitForTheLegacyStream) {
  expect_broken("'look' reads .*'fill' writes", [] {
    const TestStream stream(cudaStreamNonBlocking);
    const Floats values;
    fill(cudaStreamLegacy, values, 1);
    look(stream, values);
  });
}

TEST_F(Order, TheLegacyStreamDoesNotWaitForNonBlockingStreams) {
  expect_broken("'look' reads .*'fill' writes", [] {
    const TestStream stream(cudaStreamNonBlocking);
    const Floats values;
    fill(stream, values, 1);
    look(cudaStreamLegacy, values);
  });
}

TEST_F(Order, WorkOfADestroyedStreamStillRuns) {
  const Floats values;
  {
    const TestStream stream(cudaStreamDefault);
    fill_slowly(stream, values, 1);
  }
  EXPECT_TRUE(comes_true([&] { return *static_cast<const volatile float*>(address(values.begin())) == 1; }));
}

TEST_F(Order, FunctionsOfTheHostRunInTheOrderOfTheStream) {
  const TestStream stream;
  const Floats values;
  float seen = 0;
  struct Look {
    const void* from;
    float* target;
  } look = {values.begin(), &seen};
  fill_slowly(stream, values, 7);
  const auto copy = [](void* data) {
    const auto& request = *static_cast<const Look*>(data);
    *request.target = *static_cast<const float*>(address(request.from));
  };
  EXPECT_EQ(cudaLaunchHostFunc(stream, copy, &look), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(seen, 7);
}

TEST_F(Order, TimeBetweenEventsIsThatOfTheWorkBetween) {
  const TestStream stream;
  const Floats values;
  const TestEvent begin(cudaEventDefault);
  const TestEvent end(cudaEventDefault);
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorInvalidResourceHandle);  // never recorded
  EXPECT_EQ(cudaEventRecord(begin, stream), cudaSuccess);
  fill_slowly(stream, values, 1);
  EXPECT_EQ(cudaEventRecord(end, stream), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(end), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaSuccess);
  EXPECT_GE(milliseconds, 19);
  const TestEvent without_time;
  EXPECT_EQ(cudaEventRecord(without_time, stream), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, without_time), cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

TEST_F(Order, HandlesThatDoNotExistAreErrors) {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  cudaEvent_t event = nullptr;
  EXPECT_EQ(cudaEventCreateWithFlags(&event, 0), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

TEST_F(Order, ErrorsStayUntilTheyAreTaken) {
  EXPECT_EQ(cudaSetDevice(1000), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace order_test
}  // namespace lockstep::fake_gpu
