// SPDX-License-Identifier: BSD-3-Clause
// How communicators begin and end, and calls that return before they take effect.
#include "fake_gpu/rules/ranks.hpp"

namespace lockstep::fake_gpu {
namespace nccl_calls_test {

constexpr int kPolls = 2;  // the default of FAKE_GPU_NCCL_POLLS

class NcclCalls : public ::testing::TestWithParam<int> {};

TEST_P(NcclCalls, ACommunicatorKnowsItsRanks) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm comm(rank);
    int count = -1;
    int mine = -1;
    EXPECT_EQ(ncclCommCount(comm, &count), ncclSuccess);
    EXPECT_EQ(ncclCommUserRank(comm, &mine), ncclSuccess);
    EXPECT_EQ(count, rank.size);
    EXPECT_EQ(mine, rank.rank);
  });
}

TEST_P(NcclCalls, CommunicatorsBeginAndEndAgain) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm first(rank);
    for (int round = 0; round < 3; ++round) {
      const TestStream stream;
      const Floats values;
      ncclComm_t comm = NCCL_COMM_NULL;
      EXPECT_EQ(ncclCommSplit(first, 0, rank.rank, &comm, nullptr), ncclSuccess);
      write(values, all(static_cast<float>(rank.rank + 1)));
      EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
      EXPECT_EQ(ncclCommFinalize(comm), ncclSuccess);
      EXPECT_EQ(values.values(), all(sum_of_ranks(rank)));
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    }
  });
}

TEST_P(NcclCalls, DestroyingWaitsForCollectives) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Floats values;
    write(values, all(static_cast<float>(rank.rank + 1)));
    const TestStream stream;
    {
      const Comm comm(rank);
      EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
    }
    EXPECT_EQ(*static_cast<const volatile float*>(address(values.begin())), sum_of_ranks(rank));
  });
}

// ---- calls that return before they take effect

TEST_P(NcclCalls, ANonBlockingCommunicatorIsInProgressAtFirst) {
  expect_pass(GetParam(), [](const Rank& rank) {
    ncclComm_t comm = NCCL_COMM_NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, rank.size, rank.id, rank.rank, &config), ncclInProgress);
    for (int poll = 0; poll < kPolls; ++poll) {
      ncclResult_t state = ncclSuccess;
      EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
      EXPECT_EQ(state, ncclInProgress);
    }
    EXPECT_EQ(settled(comm), ncclSuccess);
    EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
    EXPECT_EQ(settled(comm), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  });
}

TEST_P(NcclCalls, ANonBlockingCollectiveIsQueuedByAPoll) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm comm(rank, /*is_blocking=*/false);
    const TestStream stream;
    const Floats values;
    write(values, all(static_cast<float>(rank.rank + 1)));
    const std::int64_t before = counters().nccl_calls;
    EXPECT_EQ(sum(values, comm, stream), ncclInProgress);
    ncclResult_t state = ncclSuccess;
    for (int poll = 0; poll < kPolls; ++poll) {
      EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
      EXPECT_EQ(state, ncclInProgress);
    }
    EXPECT_EQ(counters().nccl_calls, before);
    EXPECT_EQ(values.values(), all(static_cast<float>(rank.rank + 1)));
    EXPECT_EQ(settled(comm), ncclSuccess);
    EXPECT_EQ(counters().nccl_calls, before + 1);
    EXPECT_EQ(values.values(), all(sum_of_ranks(rank)));
  });
}

TEST_P(NcclCalls, WithoutPollsACollectiveIsQueuedByItsCall) {
  expect_pass(GetParam(), [](const Rank& rank) {
    setenv("FAKE_GPU_NCCL_POLLS", "0", 1);
    const Comm comm(rank, /*is_blocking=*/false);
    const TestStream stream;
    const Floats values;
    write(values, all(static_cast<float>(rank.rank + 1)));
    EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
    EXPECT_EQ(values.values(), all(sum_of_ranks(rank)));
  });
}

TEST_P(NcclCalls, NoCallWhileOneIsInProgress) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm comm(rank, /*is_blocking=*/false);
    const TestStream stream;
    const Floats values;
    write(values, all(1));
    EXPECT_EQ(sum(values, comm, stream), ncclInProgress);
    EXPECT_EQ(sum(values, comm, stream), ncclInvalidUsage);
    EXPECT_NE(last_error().find("in progress"), std::string::npos) << last_error();
    EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidUsage);
    EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidUsage);
    EXPECT_EQ(settled(comm), ncclSuccess);
    EXPECT_EQ(sum(values, comm, stream), ncclInProgress);
    EXPECT_EQ(settled(comm), ncclSuccess);
    EXPECT_EQ(values.values(), all(static_cast<float>(rank.size * rank.size)));
  });
}

TEST_P(NcclCalls, RegisteringIsACallThatMayBeInProgress) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm comm(rank, /*is_blocking=*/false);
    const TestStream stream;
    const Floats values;
    void* first = nullptr;
    void* second = nullptr;
    EXPECT_EQ(ncclCommRegister(comm, values.begin(), values.bytes(), &first), ncclInProgress);
    EXPECT_EQ(ncclCommRegister(comm, values.begin(), values.bytes(), &second), ncclInvalidUsage);
    EXPECT_EQ(ncclCommDeregister(comm, first), ncclInvalidUsage);
    EXPECT_EQ(settled(comm), ncclSuccess);
    EXPECT_EQ(ncclCommDeregister(comm, first), ncclSuccess);
  });
}

// An event that is recorded before NCCL has launched does not include the collective.
TEST(NcclRules, AnEventBeforeTheLaunchIsTooEarly) {
  expect_all_broken(2, "race: 'look' reads", [](const Rank& rank) {
    const Comm comm(rank, /*is_blocking=*/false);
    const TestStream stream;
    const TestStream reader;
    const Floats values;
    const TestEvent event;
    write(values, all(1));
    EXPECT_EQ(sum(values, comm, stream), ncclInProgress);
    EXPECT_EQ(cudaEventRecord(event, stream), cudaSuccess);
    EXPECT_EQ(settled(comm), ncclSuccess);
    rank.meet();
    EXPECT_EQ(cudaStreamWaitEvent(reader, event, 0), cudaSuccess);
    look(reader, values);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclCalls, ::testing::Values(1, 2, 4),
                         [](const auto& size) { return std::to_string(size.param); });

}  // namespace nccl_calls_test
}  // namespace lockstep::fake_gpu
