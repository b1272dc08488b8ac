// SPDX-License-Identifier: BSD-3-Clause
// A communicator lives as long as the graphs that use it (localPersistentRefs in NCCL).
#include "fake_gpu/rules/ranks.hpp"

namespace lockstep::fake_gpu {
namespace nccl_lifetime_test {

using namespace std::chrono_literals;

/// A graph with one collective of `comm`.
cudaGraphExec_t graph_of(ncclComm_t comm, const Floats& values, cudaStream_t stream) {
  begin(stream);
  EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
  return end(stream);
}

void expect_waits_for_graph(const std::function<void(ncclComm_t)>& finish) {
  expect_pass(1, [&finish](const Rank& rank) {
    ncclComm_t comm = NCCL_COMM_NULL;
    EXPECT_EQ(ncclCommInitRank(&comm, 1, rank.id, 0), ncclSuccess);
    const TestStream stream;
    const Floats values;
    cudaGraphExec_t exec = graph_of(comm, values, stream);
    std::atomic<bool> has_returned = false;
    std::thread thread([&] {
      finish(comm);
      has_returned = true;
    });
    std::this_thread::sleep_for(100ms);
    EXPECT_FALSE(has_returned);
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    thread.join();
  });
}

TEST(NcclLifetime, AnAbortWaitsUntilTheGraphIsDestroyed) {
  expect_waits_for_graph([](ncclComm_t comm) { EXPECT_EQ(ncclCommAbort(comm), ncclSuccess); });
}

TEST(NcclLifetime, DestroyingWaitsUntilTheGraphIsDestroyed) {
  expect_waits_for_graph([](ncclComm_t comm) { EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess); });
}

TEST(NcclLifetime, FinalizingIsInProgressUntilTheGraphIsDestroyed) {
  expect_pass(1, [](const Rank& rank) {
    ncclComm_t comm = NCCL_COMM_NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, rank.id, 0, &config), ncclInProgress);
    EXPECT_EQ(settled(comm), ncclSuccess);
    const TestStream stream;
    const Floats values;
    begin(stream);
    EXPECT_EQ(sum(values, comm, stream), ncclInProgress);
    EXPECT_EQ(settled(comm), ncclSuccess);
    cudaGraphExec_t exec = end(stream);
    EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
    for (int poll = 0; poll < 20; ++poll) {
      ncclResult_t state = ncclSuccess;
      EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
      EXPECT_EQ(state, ncclInProgress);
    }
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    EXPECT_EQ(settled(comm), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  });
}

TEST(NcclLifetime, NothingIsDestroyedBeforeFinalizingIsComplete) {
  expect_all_broken(1, "ncclCommDestroy was called while ncclCommFinalize is in progress", [](const Rank& rank) {
    ncclComm_t comm = NCCL_COMM_NULL;
    EXPECT_EQ(init(rank, /*is_blocking=*/false, &comm), ncclSuccess);
    EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
    ncclCommDestroy(comm);
  });
}

TEST(NcclLifetime, ALaunchDuringAnAbortEndsAtOnce) {
  expect_pass(2, [](const Rank& rank) {
    ncclComm_t comm = NCCL_COMM_NULL;
    EXPECT_EQ(ncclCommInitRank(&comm, 2, rank.id, rank.rank), ncclSuccess);
    const TestStream stream;
    const Floats values;
    cudaGraphExec_t exec = graph_of(comm, values, stream);
    std::thread aborting([comm] { EXPECT_EQ(ncclCommAbort(comm), ncclSuccess); });
    std::this_thread::sleep_for(50ms);
    if (rank.rank == 0) {  // the other one would be missing
      EXPECT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    }
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    aborting.join();
  });
}

}  // namespace nccl_lifetime_test
}  // namespace lockstep::fake_gpu
