// SPDX-License-Identifier: BSD-3-Clause
// Graphs: what is recorded, and when it runs.
#include "fake_gpu/rules/support.hpp"

namespace lockstep::fake_gpu {
namespace graph_test {

class Graph : public FakeGpuRule {
 protected:
  cudaGraph_t capture(const std::function<void()>& body) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    body();
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    return graph;
  }
  static cudaGraphExec_t instantiate(cudaGraph_t graph) {
    cudaGraphExec_t exec = nullptr;
    EXPECT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0), cudaSuccess);
    return exec;
  }
  cudaGraphExec_t record(const std::function<void()>& body) {
    cudaGraph_t graph = capture(body);
    cudaGraphExec_t exec = instantiate(graph);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return exec;
  }

  const TestStream stream_;
  const TestStream side_;
};

TEST_F(Graph, RecordedWorkRunsAtEachLaunch) {
  const Floats values;
  fill(stream_, values, 1);
  cudaGraphExec_t exec = record([&] { add(stream_, values, values); });
  EXPECT_EQ(values.values(), all(1));
  for (int launch = 0; launch < 3; ++launch) EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
  EXPECT_EQ(values.values(), all(8));
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_F(Graph, ALaunchIsPartOfItsStream) {
  const Floats values;
  cudaGraphExec_t exec = record([&] { add(stream_, values, values); });
  fill_slowly(side_, values, 1);
  EXPECT_EQ(cudaGraphLaunch(exec, side_), cudaSuccess);
  add(side_, values, values);
  EXPECT_EQ(values.values(), all(4));
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_F(Graph, EventsOrderNodes) {
  const Floats values;
  const Floats sum;
  cudaGraphExec_t exec = record([&] {
    fill_slowly(stream_, values, 1);
    follow(side_, stream_);
    fill(side_, sum, 1);
    add(side_, sum, values);
    follow(stream_, side_);
    add(stream_, values, sum);
  });
  EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
  EXPECT_EQ(sum.values(), all(2));
  EXPECT_EQ(values.values(), all(3));
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_F(Graph, CopiesReadTheirSourceAtEachLaunch) {
  const Floats values;
  const PinnedFloats source;
  cudaGraphExec_t exec = record([&] {
    EXPECT_EQ(cudaMemcpyAsync(values.begin(), source.begin(), 16, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  });
  for (const float value : {1.F, 2.F}) {
    for (std::size_t i = 0; i < 4; ++i) source[i] = value;
    EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
    EXPECT_EQ(values.values(), all(value));
  }
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_F(Graph, NodesAreCounted) {
  const Floats values;
  cudaGraph_t graph = capture([&] {
    fill(stream_, values, 1);
    add(stream_, values, values);
  });
  std::size_t count = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  graph = capture([] {});
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(Graph, AnEmptyGraphCanBeLaunched) {
  cudaGraphExec_t exec = record([] {});
  EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

// CUDA frees it once it has run.
TEST_F(Graph, AGraphThatRunsMayBeDestroyed) {
  const Floats values;
  cudaGraphExec_t exec = record([&] { fill_slowly(stream_, values, 5); });
  EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(values.values(), all(5));
}

TEST_F(Graph, WhatWorkHoldsLivesAsLongAsTheGraph) {
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = held;
  cudaGraph_t graph = capture([&] { enqueue(stream_, "holder", {}, [held] {}); });
  held.reset();
  cudaGraphExec_t exec = instantiate(graph);
  EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_FALSE(watched.expired());
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_TRUE(comes_true([&] { return watched.expired(); }));
}

TEST_F(Graph, WhatWorkHoldsIsFreedWithAnInvalidCapture) {
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = held;
  EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(enqueue(stream_, "holder", {}, [held] {}), cudaSuccess);
  held.reset();
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_TRUE(watched.expired());
  cudaGetLastError();
}

TEST_F(Graph, HandlesThatDoNotExistAreErrors) {
  cudaGraphExec_t exec = record([] {});
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaErrorInvalidValue);
  cudaGetLastError();
}

}  // namespace graph_test
}  // namespace lockstep::fake_gpu
