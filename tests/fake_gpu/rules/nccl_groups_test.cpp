// SPDX-License-Identifier: BSD-3-Clause
// Several calls in one group.
#include "fake_gpu/rules/ranks.hpp"

namespace lockstep::fake_gpu {
namespace nccl_groups_test {

class NcclGroups : public ::testing::TestWithParam<int> {};

TEST_P(NcclGroups, AGroupIsOneCall) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm whole(rank);
    for (const bool is_blocking : {true, false}) {
      ncclComm_t comm = NCCL_COMM_NULL;
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = is_blocking ? 1 : 0;
      EXPECT_EQ(ncclCommSplit(whole, 0, 0, &comm, &config), ncclSuccess);
      const TestStream stream;
      const Floats a;
      const Floats b;
      write(a, all(static_cast<float>(rank.rank + 1)));
      write(b, all(static_cast<float>(rank.rank)));
      const std::int64_t before = counters().nccl_calls;
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      EXPECT_EQ(sum(a, comm, stream), ncclSuccess);
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
      EXPECT_EQ(ncclBroadcast(b.begin(), b.begin(), 4, ncclFloat32, rank.size - 1, comm, stream), ncclSuccess);
      EXPECT_EQ(counters().nccl_calls, before);  // nothing is queued yet
      EXPECT_EQ(ncclGroupEnd(), is_blocking ? ncclSuccess : ncclInProgress);
      EXPECT_EQ(settled(comm), ncclSuccess);
      EXPECT_EQ(counters().nccl_calls, before + 1);
      EXPECT_EQ(a.values(), all(sum_of_ranks(rank)));
      EXPECT_EQ(b.values(), all(static_cast<float>(rank.size - 1)));
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    }
  });
}

TEST_P(NcclGroups, AGroupOfSeveralCommunicators) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm whole(rank);
    ncclComm_t alone = NCCL_COMM_NULL;
    EXPECT_EQ(ncclCommSplit(whole, rank.rank, 0, &alone, nullptr), ncclSuccess);
    const TestStream stream;
    const TestStream other;
    const Floats a;
    const Floats b;
    write(a, all(1));
    write(b, all(1));
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(sum(a, whole, stream), ncclSuccess);
    EXPECT_EQ(sum(b, alone, other), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(a.values(), all(static_cast<float>(rank.size)));
    EXPECT_EQ(b.values(), all(1));
    EXPECT_EQ(ncclCommDestroy(alone), ncclSuccess);
  });
}

// NCCL documents that a group with several streams is as if it were on each of them.
TEST_P(NcclGroups, StreamsOfAGroupWaitForEachOther) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream first;
    const TestStream second;
    const Floats a;
    const Floats b;
    fill_slowly(second, a, 1);
    fill_slowly(first, b, 2);
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(sum(a, comm, first), ncclSuccess);
    EXPECT_EQ(sum(b, comm, second), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    add(second, a, a);
    add(first, b, b);
    EXPECT_EQ(a.values(), all(static_cast<float>(2 * rank.size)));
    EXPECT_EQ(b.values(), all(static_cast<float>(4 * rank.size)));
  });
}

TEST_P(NcclGroups, CollectivesOnTwoStreamsKeepTheirOrder) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream first;
    const TestStream second;
    const Floats a;
    const Floats b(8);
    for (int round = 0; round < 20; ++round) {
      fill(first, a, 1);
      EXPECT_EQ(sum(a, comm, first), ncclSuccess);
      fill(second, b, 2);
      EXPECT_EQ(sum(b, comm, second), ncclSuccess);
    }
    EXPECT_EQ(a.values(), all(static_cast<float>(rank.size)));
    EXPECT_EQ(b.values(), all(static_cast<float>(2 * rank.size), 8));
  });
}

TEST(NcclGroupRules, OneThreadHasSeveralRanks) {
  if (is_schedule("eager")) GTEST_SKIP() << "queueing for one rank would wait for the other";
  expect_pass(1, [](const Rank& rank) {
    int devices = 0;
    EXPECT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
    ASSERT_GE(devices, 2) << "FAKE_GPU_DEVICES must be 2";
    ncclComm_t comms[2] = {};
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (int device = 0; device < 2; ++device) {
      EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
      EXPECT_EQ(ncclCommInitRank(&comms[device], 2, rank.id, device), ncclSuccess);
    }
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    const TestStream second;
    const Floats on_second;
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    const TestStream first;
    const Floats on_first;
    write(on_first, all(1));
    EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
    write(on_second, all(2));
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(sum(on_first, comms[0], first), ncclSuccess);
    EXPECT_EQ(sum(on_second, comms[1], second), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(first), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(second), cudaSuccess);
    EXPECT_EQ(on_second.values(), all(3));
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(on_first.values(), all(3));
    for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  });
}

TEST(NcclGroupRules, AGroupCompletesTheBeginOfItsCommunicators) {
  expect_pass(1, [](const Rank& rank) {
    ncclComm_t comms[2] = {};
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (int position = 0; position < 2; ++position) {  // both are on one GPU
      EXPECT_EQ(ncclCommInitRank(&comms[position], 2, rank.id, position), ncclSuccess);
    }
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_NE(last_error().find("Duplicate GPU detected"), std::string::npos) << last_error();
  });
}

TEST(NcclGroupRules, AGroupEndsOnce) {
  expect_pass(1, [](const Rank&) { EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage); });
}

TEST(NcclGroupRules, AFailureInAGroupIsThatOfTheGroup) {
  expect_pass(1, [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    const Floats values;
    const std::int64_t before = counters().nccl_calls;
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
    EXPECT_EQ(ncclBroadcast(values.begin(), values.begin(), 4, ncclFloat32, 9, comm, stream), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_EQ(counters().nccl_calls, before);
    EXPECT_EQ(sum(values, comm, stream), ncclSuccess);  // the next group is another one
  });
}

TEST(NcclGroupRules, AGroupIsBlockingOrNot) {
  expect_pass(1, [](const Rank& rank) {
    const Comm blocking(rank);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t other = NCCL_COMM_NULL;
    EXPECT_EQ(ncclCommSplit(blocking, 0, 0, &other, &config), ncclSuccess);
    const TestStream stream;
    const Floats a;
    const Floats b;
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(sum(a, blocking, stream), ncclSuccess);
    EXPECT_EQ(sum(b, other, stream), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  });
}

TEST(NcclGroupRules, CollectivesOfAGroupUseOtherMemory) {
  expect_all_broken(1, "are in one group, use the same memory", [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    const Floats values;
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
    EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
    ncclGroupEnd();
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclGroups, ::testing::Values(1, 2, 4),
                         [](const auto& size) { return std::to_string(size.param); });

}  // namespace nccl_groups_test
}  // namespace lockstep::fake_gpu
