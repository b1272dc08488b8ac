// SPDX-License-Identifier: BSD-3-Clause
// The counters of what a program costs.
#include <tuple>

#include "fake_gpu/rules/support.hpp"

namespace lockstep::fake_gpu {

static bool operator==(const Counters& a, const Counters& b) {
  const auto tie = [](const Counters& c) {
    return std::tie(c.launches, c.synchronizations, c.late_waits, c.pageable_copies, c.host_reads, c.device_allocations,
                    c.device_frees, c.host_allocations, c.nccl_calls);
  };
  return tie(a) == tie(b);
}

static void PrintTo(const Counters& c, std::ostream* out) {
  *out << "launches " << c.launches << ", synchronizations " << c.synchronizations << ", late waits " << c.late_waits
       << ", pageable copies " << c.pageable_copies << ", host reads " << c.host_reads << ", device allocations "
       << c.device_allocations << ", frees " << c.device_frees << ", host allocations " << c.host_allocations
       << ", NCCL calls " << c.nccl_calls;
}

namespace counters_test {

/// The cost of `body`.
Counters cost(const std::function<void()>& body) {
  const Counters before = counters();
  body();
  return counters() - before;
}

class Counter : public FakeGpuRule {
 protected:
  Counter() {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    begin_step();
  }

  const TestStream stream_;
  const Floats values_;
  const Floats others_;
};

TEST_F(Counter, Launches) {
  EXPECT_EQ(cost([&] {
              fill(stream_, values_, 1);
              add(stream_, values_, values_);
            }),
            Counters{.launches = 2});
}

TEST_F(Counter, AGraphIsOneLaunch) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  EXPECT_EQ(cost([&] {
              EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
              fill(stream_, values_, 1);
              add(stream_, values_, values_);
              EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
              EXPECT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0), cudaSuccess);
            }),
            Counters{});
  EXPECT_EQ(cost([&] { EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess); }), Counters{.launches = 1});
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(Counter, CopiesAndSetsAreNoLaunches) {
  EXPECT_EQ(cost([&] {
              EXPECT_EQ(cudaMemsetAsync(values_.begin(), 0, 16, stream_), cudaSuccess);
              EXPECT_EQ(cudaMemcpyAsync(others_.begin(), values_.begin(), 16, cudaMemcpyDeviceToDevice, stream_),
                        cudaSuccess);
            }),
            Counters{});
}

TEST_F(Counter, EventsAreFree) {
  const TestEvent event;
  const TestStream other;
  EXPECT_EQ(cost([&] {
              EXPECT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
              EXPECT_EQ(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
              cudaEventQuery(event);
              cudaGetLastError();
            }),
            Counters{});
}

TEST_F(Counter, AWaitForWorkOfTheStepIsASynchronization) {
  fill(stream_, values_, 1);
  EXPECT_EQ(cost([&] { EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }), Counters{.synchronizations = 1});
}

TEST_F(Counter, AWaitForAnEventIsASynchronization) {
  const TestEvent event;
  fill(stream_, values_, 1);
  EXPECT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  EXPECT_EQ(cost([&] { EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess); }), Counters{.synchronizations = 1});
}

TEST_F(Counter, AWaitForTheDeviceIsASynchronization) {
  fill(stream_, values_, 1);
  EXPECT_EQ(cost([&] { EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess); }), Counters{.synchronizations = 1});
}

// The number must not depend on time.
TEST_F(Counter, AWaitForWorkThatIsOverCountsToo) {
  const TestEvent event;
  fill(stream_, values_, 1);
  EXPECT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  EXPECT_TRUE(comes_true([&] { return cudaEventQuery(event) == cudaSuccess; }));
  cudaGetLastError();
  EXPECT_EQ(cost([&] { EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }), Counters{.synchronizations = 1});
}

TEST_F(Counter, ASecondWaitForTheSameWorkIsFree) {
  fill(stream_, values_, 1);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cost([&] { EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }), Counters{});
}

TEST_F(Counter, AWaitForWorkOfAnEarlierStepIsALateWait) {
  const TestEvent event;
  fill(stream_, values_, 1);
  EXPECT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  begin_step();
  fill(stream_, values_, 2);
  EXPECT_EQ(cost([&] { EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess); }), Counters{.late_waits = 1});
  EXPECT_EQ(cost([&] { EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }), Counters{.synchronizations = 1});
}

TEST_F(Counter, PageableCopies) {
  std::vector<float> host = all(0);
  EXPECT_EQ(cost([&] {
              EXPECT_EQ(cudaMemcpyAsync(values_.begin(), host.data(), 16, cudaMemcpyHostToDevice, stream_),
                        cudaSuccess);
            }),
            Counters{.pageable_copies = 1});
  const Counters back = cost([&] {
    EXPECT_EQ(cudaMemcpyAsync(host.data(), values_.begin(), 16, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  });
  EXPECT_EQ(back, (Counters{.synchronizations = 1, .pageable_copies = 1, .host_reads = 1}));
}

TEST_F(Counter, PinnedCopiesAreReadsOfTheHostOnly) {
  const PinnedFloats host;
  EXPECT_EQ(
      cost([&] {
        EXPECT_EQ(cudaMemcpyAsync(values_.begin(), host.begin(), 16, cudaMemcpyHostToDevice, stream_), cudaSuccess);
        EXPECT_EQ(cudaMemcpyAsync(host.begin(), values_.begin(), 16, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
      }),
      Counters{.host_reads = 1});
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

TEST_F(Counter, AllocationsOfTheDevice) {
  void* memory = nullptr;
  EXPECT_EQ(cost([&] { EXPECT_EQ(cudaMalloc(&memory, 16), cudaSuccess); }), Counters{.device_allocations = 1});
  EXPECT_EQ(cost([&] { EXPECT_EQ(cudaFree(memory), cudaSuccess); }).device_frees, 1);
}

TEST_F(Counter, AllocationsOfTheHost) {
  static char registered[4096];
  void* memory = nullptr;
  EXPECT_EQ(cost([&] {
              EXPECT_EQ(cudaHostAlloc(&memory, 16, cudaHostAllocDefault), cudaSuccess);
              EXPECT_EQ(cudaHostRegister(registered, sizeof registered, cudaHostRegisterDefault), cudaSuccess);
            }),
            Counters{.host_allocations = 2});
  EXPECT_EQ(cudaHostUnregister(registered), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(memory), cudaSuccess);
}

TEST_F(Counter, Collectives) {
  EXPECT_EQ(cost([&] { EXPECT_EQ(enqueue_collective(stream_, "collective", {}, [] {}), cudaSuccess); }),
            Counters{.nccl_calls = 1});
  EXPECT_EQ(cost(count_nccl_call), Counters{.nccl_calls = 1});
}

TEST_F(Counter, CollectivesOfAGraphCountAtEachLaunch) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  EXPECT_EQ(cost([&] {
              EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
              EXPECT_EQ(enqueue_collective(stream_, "collective", {}, [] {}), cudaSuccess);
              EXPECT_EQ(enqueue_collective(stream_, "collective", {}, [] {}), cudaSuccess);
              EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
              EXPECT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0), cudaSuccess);
            }),
            Counters{});
  EXPECT_EQ(cost([&] {
              EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
              EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
            }),
            (Counters{.launches = 2, .nccl_calls = 4}));
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

}  // namespace counters_test
}  // namespace lockstep::fake_gpu
