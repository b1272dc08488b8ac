// SPDX-License-Identifier: BSD-3-Clause
// Aborts, late ranks and ranks that fail.
#include "fake_gpu/rules/ranks.hpp"

namespace lockstep::fake_gpu {
namespace nccl_failures_test {

using namespace std::chrono_literals;

/// Runs `work` in a thread of its own.
class Beside {
 public:
  explicit Beside(const std::function<void()>& work) : thread_(work) {}
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;
  ~Beside() { thread_.join(); }

 private:
  std::thread thread_;
};

TEST(NcclFailures, AnAbortEndsACollectiveThatWaits) {
  expect_pass(2, [](const Rank& rank) {
    ncclComm_t comm = NCCL_COMM_NULL;
    EXPECT_EQ(init(rank, true, &comm), ncclSuccess);
    const TestStream stream;
    const Floats values;
    const Floats later;
    if (rank.rank == 0) {  // the other rank stays away
      const Beside watch([comm] {
        std::this_thread::sleep_for(100ms);
        EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
      });
      EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
      fill(stream, later, 1);
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      EXPECT_EQ(later.values(), all(1));  // the stream continues
    }
    rank.meet();
    if (rank.rank == 0) {
      EXPECT_EQ(sum(values, comm, stream), ncclInvalidArgument);
    }
  });
}

TEST(NcclFailures, AnAbortEndsAnInitialization) {
  expect_pass(1, [](const Rank& rank) {
    ncclComm_t comm = NCCL_COMM_NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, rank.id, 0, &config), ncclInProgress);
    ncclResult_t state = ncclSuccess;
    for (int poll = 0; poll < 20; ++poll) {
      EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
      EXPECT_EQ(state, ncclInProgress);
    }
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  });
}

TEST(NcclFailures, AnAbortForgetsWhatIsNotLaunched) {
  expect_pass(1, [](const Rank& rank) {
    ncclComm_t comm = NCCL_COMM_NULL;
    EXPECT_EQ(init(rank, false, &comm), ncclSuccess);
    const TestStream stream;
    const Floats values;
    const std::int64_t before = counters().nccl_calls;
    EXPECT_EQ(sum(values, comm, stream), ncclInProgress);
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(counters().nccl_calls, before);
  });
}

TEST(NcclFailures, AnErrorOfTheNetwork) {
  expect_pass(2, [](const Rank& rank) {
    ncclComm_t comm = NCCL_COMM_NULL;
    EXPECT_EQ(init(rank, true, &comm), ncclSuccess);
    const TestStream stream;
    const Floats values;
    if (rank.rank == 0) plan_fault({.fault = PlannedFault::nccl_error, .occurrence = 2});
    {
      const Beside watch([&rank, comm] {
        ncclResult_t state = ncclSuccess;
        if (rank.rank == 0) {
          EXPECT_TRUE(
              comes_true([&] { return ncclCommGetAsyncError(comm, &state) == ncclSuccess && state != ncclSuccess; }));
          EXPECT_EQ(state, ncclRemoteError);
        }
        rank.meet();  // the peer learns it by other ways: for NCCL, nothing has happened there
        EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
        EXPECT_EQ(state, rank.rank == 0 ? ncclRemoteError : ncclSuccess);
        EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
      });
      EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
      EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);  // not before the abort
    }
  });
}

TEST(NcclFailures, ACommunicatorThatFailedTakesNoCall) {
  expect_pass(1, [](const Rank& rank) {
    ncclComm_t comm = NCCL_COMM_NULL;
    EXPECT_EQ(init(rank, true, &comm), ncclSuccess);
    const TestStream stream;
    const Floats values;
    plan_fault({.fault = PlannedFault::nccl_error, .occurrence = 1});
    {
      const Beside watch([&] {
        ncclResult_t state = ncclSuccess;
        EXPECT_TRUE(
            comes_true([&] { return ncclCommGetAsyncError(comm, &state) == ncclSuccess && state != ncclSuccess; }));
        EXPECT_EQ(sum(values, comm, stream), ncclRemoteError);
        EXPECT_EQ(ncclCommDestroy(comm), ncclRemoteError);
        EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
      });
      EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
    }
  });
}

TEST(NcclFailures, ALateRank) {
  expect_pass(2, [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    const Floats values;
    write(values, all(1));
    if (rank.rank == 1) plan_fault({.fault = PlannedFault::nccl_late, .occurrence = 1, .seconds = 0.3});
    rank.meet();
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
    EXPECT_EQ(values.values(), all(2));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 250ms);
  });
}

TEST(NcclFailures, ARankThatEnds) {
  const std::vector<Ended> ended = run_ranks(2, [](const Rank& rank) {
    ncclComm_t comm = NCCL_COMM_NULL;
    EXPECT_EQ(init(rank, true, &comm), ncclSuccess);
    const TestStream stream;
    const Floats values;
    if (rank.rank == 1) plan_fault({.fault = PlannedFault::nccl_exit, .occurrence = 2});
    EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    const Beside watch([&rank, comm] {
      if (rank.rank == 1) return;
      std::this_thread::sleep_for(200ms);
      EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    });
    EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  });
  EXPECT_EQ(ended[0].code, 0) << ended[0].text;
  EXPECT_EQ(ended[1].code, 1);
  EXPECT_EQ(ended[1].text, "");  // ends without a word
}

}  // namespace nccl_failures_test
}  // namespace lockstep::fake_gpu
