// SPDX-License-Identifier: BSD-3-Clause
// Work that nothing orders must not use the same memory, unless it only reads. It is found at the call, in every
// schedule.
#include "fake_gpu/rules/support.hpp"

namespace lockstep::fake_gpu {
namespace race_test {

class Race : public FakeGpuRule {};

TEST_F(Race, TwoWrites) {
  expect_broken("race: 'second' writes 16 bytes at 0x.* that 'first' writes", [] {
    const TestStream one;
    const TestStream other;
    const Floats values;
    fill(one, values, 1, "first");
    fill(other, values, 2, "second");
  });
}

TEST_F(Race, AReadAfterAWrite) {
  expect_broken("race: 'second' reads 16 bytes at 0x.* that 'first' writes", [] {
    const TestStream one;
    const TestStream other;
    const Floats values;
    fill(one, values, 1, "first");
    look(other, values, "second");
  });
}

TEST_F(Race, AWriteAfterARead) {
  expect_broken("race: 'second' writes 16 bytes at 0x.* that 'first' reads", [] {
    const TestStream one;
    const TestStream other;
    const Floats values;
    look(one, values, "first");
    fill(other, values, 2, "second");
  });
}

TEST_F(Race, AWriteAfterOneOfSeveralReads) {
  expect_broken("race: 'third' writes 16 bytes at 0x.* that 'first' reads", [] {
    const TestStream one;
    const TestStream other;
    const Floats values;
    look(one, values, "first");
    look(other, values, "second");
    fill(other, values, 2, "third");
  });
}

TEST_F(Race, ReadsNeedNoOrder) {
  const TestStream one;
  const TestStream other;
  const Floats values;
  look(one, values);
  look(other, values);
  look(one, values);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(Race, OtherMemoryNeedsNoOrder) {
  const TestStream one;
  const TestStream other;
  const Floats values(8);
  EXPECT_EQ(cudaMemsetAsync(values.begin(), 0, 16, one), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(values.begin() + 4, 0, 16, other), cudaSuccess);
  EXPECT_EQ(values.values(), all(0, 8));
}

TEST_F(Race, OneByteInCommonIsEnough) {
  expect_broken("race: .*1 bytes? at", [] {
    const TestStream one;
    const TestStream other;
    const Floats values(8);
    auto* const bytes = reinterpret_cast<char*>(values.begin());
    EXPECT_EQ(cudaMemsetAsync(bytes, 0, 17, one), cudaSuccess);
    cudaMemsetAsync(bytes + 16, 0, 16, other);
  });
}

TEST_F(Race, TheSecondReadOfAChain) {
  const TestStream one;
  const TestStream between;
  const TestStream other;
  const Floats values;
  fill_slowly(one, values, 1);
  follow(between, one);
  follow(other, between);
  add(other, values, values);
  EXPECT_EQ(values.values(), all(2));
}

TEST_F(Race, AnEventFromBeforeTheWriteOrdersNothing) {
  expect_broken("race: 'look' reads", [] {
    const TestStream one;
    const TestStream other;
    const Floats values;
    const TestEvent event;
    EXPECT_EQ(cudaEventRecord(event, one), cudaSuccess);
    fill(one, values, 1);
    EXPECT_EQ(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
    look(other, values);
  });
}

TEST_F(Race, AWaitOfTheWrongStreamOrdersNothing) {
  expect_broken("race: 'look' reads", [] {
    const TestStream one;
    const TestStream other;
    const TestStream third;
    const Floats values;
    fill(one, values, 1);
    follow(third, one);
    look(other, values);
  });
}

TEST_F(Race, AWaitComesBeforeTheWorkThatNeedsIt) {
  expect_broken("race: 'look' reads", [] {
    const TestStream one;
    const TestStream other;
    const Floats values;
    const TestEvent event;
    fill(one, values, 1);
    EXPECT_EQ(cudaEventRecord(event, one), cudaSuccess);
    look(other, values);
    cudaStreamWaitEvent(other, event, 0);
  });
}

TEST_F(Race, CopiesTakePart) {
  expect_broken("race: .*cop.* reads .*'fill' writes", [] {
    const TestStream one;
    const TestStream other;
    const Floats from;
    const Floats target;
    fill(one, from, 1);
    cudaMemcpyAsync(target.begin(), from.begin(), 16, cudaMemcpyDeviceToDevice, other);
  });
}

TEST_F(Race, TheTargetOfACopyTakesPart) {
  expect_broken("race: 'look' reads .*cop.* writes", [] {
    const TestStream one;
    const TestStream other;
    const Floats from;
    const Floats target;
    EXPECT_EQ(cudaMemcpyAsync(target.begin(), from.begin(), 16, cudaMemcpyDeviceToDevice, one), cudaSuccess);
    look(other, target);
  });
}

TEST_F(Race, ASynchronousCopyDoesNotWaitForNonBlockingStreams) {
  expect_broken("race: .*cop.* reads .*'fill' writes", [] {
    const TestStream stream;
    const Floats values;
    std::vector<float> host = all(0);
    fill(stream, values, 1);
    cudaMemcpy(host.data(), values.begin(), 16, cudaMemcpyDeviceToHost);
  });
}

TEST_F(Race, AMemsetIsNotCompleteWhenItReturns) {
  expect_broken("race: 'look' reads .*set.* writes", [] {
    const TestStream stream;
    const Floats values;
    EXPECT_EQ(cudaMemset(values.begin(), 0, 16), cudaSuccess);
    look(stream, values);
  });
}

// Both are found where the second one is queued, whatever has run by then.
TEST_F(Race, AWriteThatIsLongOverButNobodyWaitedFor) {
  expect_broken("race: 'look' reads", [] {
    const TestStream one;
    const TestStream other;
    const Floats values;
    fill(one, values, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    look(other, values);
  });
}

TEST_F(Race, TheReportNamesBothCallers) {
  expect_broken("race: (.|\n)*'first' was queued by(.|\n)*'second' was queued by", [] {
    const TestStream one;
    const TestStream other;
    const Floats values;
    fill(one, values, 1, "first");
    fill(other, values, 2, "second");
  });
}

// ---- graphs: the same rules hold between the branches of a graph, and between a graph and streams.

cudaGraphExec_t captured(cudaStream_t stream, const std::function<void()>& body) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  body();
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  return exec;
}

TEST_F(Race, TwoBranchesOfAGraph) {
  expect_broken("race: '(left|right)' writes .*'(left|right)' writes", [] {
    const TestStream left;
    const TestStream right;
    const Floats values;
    cudaGraphExec_t exec = captured(left, [&] {
      follow(right, left);
      fill(left, values, 1, "left");
      fill(right, values, 2, "right");
      follow(left, right);
    });
    cudaGraphLaunch(exec, left);
  });
}

TEST_F(Race, BranchesThatAreJoinedHaveAnOrder) {
  const TestStream left;
  const TestStream right;
  const Floats values;
  const Floats other;
  cudaGraphExec_t exec = captured(left, [&] {
    follow(right, left);
    fill_slowly(left, values, 1);
    fill_slowly(right, other, 2);
    follow(left, right);
    add(left, values, other);
  });
  EXPECT_EQ(cudaGraphLaunch(exec, right), cudaSuccess);
  EXPECT_EQ(values.values(), all(3));
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_F(Race, AGraphAndAnotherStream) {
  expect_broken("race: 'look' reads .*'recorded' writes", [] {
    const TestStream stream;
    const TestStream other;
    const Floats values;
    cudaGraphExec_t exec = captured(stream, [&] { fill(stream, values, 1, "recorded"); });
    EXPECT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    look(other, values);
  });
}

TEST_F(Race, AnotherStreamAndAGraph) {
  expect_broken("race: 'recorded' writes .*'look' reads", [] {
    const TestStream stream;
    const TestStream other;
    const Floats values;
    cudaGraphExec_t exec = captured(stream, [&] { fill(stream, values, 1, "recorded"); });
    look(other, values);
    cudaGraphLaunch(exec, stream);
  });
}

TEST_F(Race, TwoGraphs) {
  expect_broken("race: 'recorded' writes .*'recorded' writes", [] {
    const TestStream stream;
    const TestStream other;
    const Floats values;
    const auto record = [&] { fill(stream, values, 1, "recorded"); };
    cudaGraphExec_t first = captured(stream, record);
    cudaGraphExec_t second = captured(stream, record);
    EXPECT_EQ(cudaGraphLaunch(first, stream), cudaSuccess);
    cudaGraphLaunch(second, other);
  });
}

// Work that is recorded has not happened: only its launch counts.
TEST_F(Race, RecordingIsNoAccess) {
  const TestStream stream;
  const TestStream other;
  const Floats values;
  fill(other, values, 1);
  cudaGraphExec_t exec = captured(stream, [&] { fill(stream, values, 2); });
  follow(stream, other);
  EXPECT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
  EXPECT_EQ(values.values(), all(2));
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_F(Race, LaunchesOfOneGraphFollowEachOther) {
  const TestStream stream;
  const TestStream other;
  const Floats values;
  fill(stream, values, 1);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  cudaGraphExec_t exec = captured(stream, [&] { add(stream, values, values); });
  EXPECT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(exec, other), cudaSuccess);  // CUDA orders it behind the first
  EXPECT_EQ(values.values(), all(4));
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

}  // namespace race_test
}  // namespace lockstep::fake_gpu
