// SPDX-License-Identifier: BSD-3-Clause
// Collectives in graphs.
#include "fake_gpu/rules/ranks.hpp"

namespace lockstep::fake_gpu {
namespace nccl_graphs_test {

using namespace std::chrono_literals;

class NcclGraphs : public ::testing::TestWithParam<int> {};

TEST_P(NcclGraphs, CollectivesRunAtEachLaunch) {
  for (const bool is_blocking : {true, false}) {
    expect_pass(GetParam(), [is_blocking](const Rank& rank) {
      const Comm comm(rank, is_blocking);
      const TestStream stream;
      const Floats values;
      write(values, all(1));
      begin(stream);
      for (int call = 0; call < 2; ++call) {
        EXPECT_EQ(sum(values, comm, stream), is_blocking ? ncclSuccess : ncclInProgress);
        EXPECT_EQ(settled(comm), ncclSuccess);
        add(stream, values, values);
      }
      cudaGraphExec_t exec = end(stream);
      const std::int64_t before = counters().nccl_calls;
      float expected = 1;
      for (int launch = 0; launch < 3; ++launch) {
        EXPECT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
        expected *= static_cast<float>(4 * rank.size * rank.size);
        EXPECT_EQ(values.values(), all(expected));
      }
      EXPECT_EQ(counters().nccl_calls, before + 6);
      EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    });
  }
}

TEST_P(NcclGraphs, EagerCollectivesBetweenLaunches) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    const Floats values;
    write(values, all(1));
    begin(stream);
    EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
    cudaGraphExec_t exec = end(stream);
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
      EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
    }
    float expected = 1;
    for (int call = 0; call < 6; ++call) expected *= static_cast<float>(rank.size);
    EXPECT_EQ(values.values(), all(expected));
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  });
}

TEST_P(NcclGraphs, AStreamOfItsOwnThatJoins) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    const TestStream side;
    const Floats values;
    write(values, all(1));
    begin(stream);
    add(stream, values, values);
    follow(side, stream);
    EXPECT_EQ(sum(values, comm, side), ncclSuccess);
    follow(stream, side);
    add(stream, values, values);
    cudaGraphExec_t exec = end(stream);
    EXPECT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    EXPECT_EQ(values.values(), all(static_cast<float>(4 * rank.size)));
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  });
}

TEST_P(NcclGraphs, SeveralGraphs) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    const TestStream side;
    const Floats values;
    write(values, all(1));
    cudaGraphExec_t graphs[2] = {};
    for (cudaGraphExec_t& exec : graphs) {
      begin(stream);
      EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
      follow(side, stream);
      EXPECT_EQ(sum(values, comm, side), ncclSuccess);
      follow(stream, side);
      exec = end(stream);
    }
    for (cudaGraphExec_t exec : graphs) EXPECT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    float expected = 1;
    for (int call = 0; call < 4; ++call) expected *= static_cast<float>(rank.size);
    EXPECT_EQ(values.values(), all(expected));
    for (cudaGraphExec_t exec : graphs) EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  });
}

TEST(NcclGraphRules, OneCollectiveOfACommunicatorRunsAtATime) {
  expect_pass(1, [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    const TestStream other;
    const Floats a;
    const Floats b;
    begin(other);
    EXPECT_EQ(sum(b, comm, other), ncclSuccess);
    cudaGraphExec_t exec = end(other);
    plan_fault({.fault = PlannedFault::nccl_late, .occurrence = 1, .seconds = 0.2});
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(sum(a, comm, stream), ncclSuccess);
    EXPECT_EQ(cudaGraphLaunch(exec, other), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
    EXPECT_GE(std::chrono::steady_clock::now() - start, 200ms);
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  });
}

TEST(NcclGraphRules, ACollectiveThatIsNotJoinedInvalidatesTheCapture) {
  expect_pass(1, [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    const TestStream side;
    const Floats values;
    begin(stream);
    follow(side, stream);
    EXPECT_EQ(sum(values, comm, side), ncclSuccess);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
    cudaGetLastError();
  });
}

TEST(NcclGraphRules, CollectivesOfTwoCommunicatorsHaveAnOrder) {
  const auto record = [](const Rank& rank, bool has_order) {
    const Comm one(rank);
    ncclComm_t other = NCCL_COMM_NULL;
    EXPECT_EQ(ncclCommSplit(one, 0, 0, &other, nullptr), ncclSuccess);
    const TestStream stream;
    const TestStream side;
    const Floats a;
    const Floats b;
    begin(stream);
    follow(side, stream);
    EXPECT_EQ(sum(a, one, stream), ncclSuccess);
    if (has_order) follow(side, stream);
    EXPECT_EQ(sum(b, other, side), ncclSuccess);
    follow(stream, side);
    EXPECT_EQ(cudaGraphExecDestroy(end(stream)), cudaSuccess);
    EXPECT_EQ(ncclCommDestroy(other), ncclSuccess);
  };
  expect_pass(1, [&](const Rank& rank) { record(rank, true); });
  expect_all_broken(1, "a graph has 'ncclAllReduce' and 'ncclAllReduce' of different communicators",
                    [&](const Rank& rank) { record(rank, false); });
}

// ---- NCCL's own thread records, where the communicator is non-blocking

TEST(NcclGraphRules, NothingIsRecordedBeforeNcclHasLaunched) {
  expect_all_broken(1, "was not launched yet when more was recorded", [](const Rank& rank) {
    const Comm comm(rank, /*is_blocking=*/false);
    const TestStream stream;
    const Floats values;
    const Floats others;
    begin(stream);
    EXPECT_EQ(sum(values, comm, stream), ncclInProgress);
    fill(stream, others, 1);
    settled(comm);
  });
}

// A graph has one list of nodes, whatever stream they come from.
TEST(NcclGraphRules, NothingIsRecordedInAnotherStreamEither) {
  expect_all_broken(1, "was not launched yet when more was recorded", [](const Rank& rank) {
    const Comm comm(rank, /*is_blocking=*/false);
    const TestStream stream;
    const TestStream side;
    const Floats values;
    const Floats others;
    begin(stream);
    follow(side, stream);
    EXPECT_EQ(sum(values, comm, side), ncclInProgress);
    fill(stream, others, 1);
    settled(comm);
  });
}

TEST(NcclGraphRules, NoWaitIsRecordedBeforeNcclHasLaunched) {
  expect_all_broken(1, "was not launched yet when more was recorded", [](const Rank& rank) {
    const Comm comm(rank, /*is_blocking=*/false);
    const TestStream stream;
    const TestStream side;
    const Floats values;
    const Floats others;
    begin(stream);
    follow(side, stream);
    fill(side, others, 1);
    EXPECT_EQ(sum(values, comm, stream), ncclInProgress);
    follow(stream, side);
    settled(comm);
  });
}

TEST(NcclGraphRules, ACaptureEndsAfterNcclHasLaunched) {
  expect_all_broken(1, "was not launched yet when the capture of its stream ended", [](const Rank& rank) {
    const Comm comm(rank, /*is_blocking=*/false);
    const TestStream stream;
    const Floats values;
    begin(stream);
    EXPECT_EQ(sum(values, comm, stream), ncclInProgress);
    end(stream);
    settled(comm);
  });
}

TEST(NcclGraphRules, ACaptureBeginsAfterNcclHasLaunched) {
  expect_all_broken(1, "was not launched yet when a capture of its stream began", [](const Rank& rank) {
    const Comm comm(rank, /*is_blocking=*/false);
    const TestStream stream;
    const Floats values;
    EXPECT_EQ(sum(values, comm, stream), ncclInProgress);
    begin(stream);
    settled(comm);
  });
}

// A real GPU reports the error of the launch.
TEST(NcclGraphRules, ACaptureThatIsInvalidRefusesTheLaunch) {
  expect_pass(1, [](const Rank& rank) {
    ncclComm_t comm = NCCL_COMM_NULL;
    EXPECT_EQ(ncclCommInitRank(&comm, 1, rank.id, 0), ncclSuccess);
    const TestStream stream;
    const Floats values;
    begin(stream);
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(sum(values, comm, stream), ncclUnhandledCudaError);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    cudaGetLastError();
  });
}

TEST(NcclGraphRules, StreamsOfAGroupBelongToOneGraph) {
  expect_pass(1, [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    const TestStream other;
    const Floats a;
    const Floats b;
    begin(stream);
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(sum(a, comm, stream), ncclSuccess);
    EXPECT_EQ(sum(b, comm, other), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_EQ(cudaGraphExecDestroy(end(stream)), cudaSuccess);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclGraphs, ::testing::Values(1, 2, 4),
                         [](const auto& size) { return std::to_string(size.param); });

}  // namespace nccl_graphs_test
}  // namespace lockstep::fake_gpu
