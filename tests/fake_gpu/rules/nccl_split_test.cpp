// SPDX-License-Identifier: BSD-3-Clause
// Communicators that are made of others.
#include "fake_gpu/rules/ranks.hpp"

namespace lockstep::fake_gpu {
namespace nccl_split_test {

ncclComm_t split(ncclComm_t parent, int color, int key) {
  ncclComm_t part = NCCL_COMM_NULL;
  EXPECT_EQ(ncclCommSplit(parent, color, key, &part, nullptr), ncclSuccess);
  return part;
}

int rank_in(ncclComm_t comm) {
  int rank = -1;
  EXPECT_EQ(ncclCommUserRank(comm, &rank), ncclSuccess);
  return rank;
}

int size_of(ncclComm_t comm) {
  int size = -1;
  EXPECT_EQ(ncclCommCount(comm, &size), ncclSuccess);
  return size;
}

/// The sum of `value` over the ranks of a communicator.
float total(float value, ncclComm_t comm) {
  const TestStream stream;
  const Floats values(1);
  write(values, {value});
  EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
  return values.values().front();
}

class NcclSplit : public ::testing::TestWithParam<int> {};

TEST_P(NcclSplit, EachColorIsACommunicator) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm parent(rank);
    const ncclComm_t part = split(parent, rank.rank % 2, rank.rank);
    float expected = 0;
    for (int peer = rank.rank % 2; peer < rank.size; peer += 2) expected += static_cast<float>(peer + 1);
    EXPECT_EQ(rank_in(part), rank.rank / 2);
    EXPECT_EQ(total(static_cast<float>(rank.rank + 1), part), expected);
    EXPECT_EQ(total(static_cast<float>(rank.rank + 1), parent), sum_of_ranks(rank));  // the parent is usable as before
    EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
  });
}

TEST_P(NcclSplit, KeysOrderTheRanks) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm parent(rank);
    const ncclComm_t reversed = split(parent, 5, -rank.rank);
    EXPECT_EQ(rank_in(reversed), rank.size - 1 - rank.rank);
    const ncclComm_t same = split(parent, 5, 0);
    EXPECT_EQ(rank_in(same), rank.rank);
    EXPECT_EQ(ncclCommDestroy(reversed), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(same), ncclSuccess);
  });
}

TEST_P(NcclSplit, ARankMayStayOut) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm parent(rank);
    const ncclComm_t part = split(parent, rank.rank == 0 ? NCCL_SPLIT_NOCOLOR : 1, 0);
    EXPECT_EQ(part == NCCL_COMM_NULL, rank.rank == 0);
    if (rank.rank == 0) return;
    EXPECT_EQ(size_of(part), rank.size - 1);
    EXPECT_EQ(total(1, part), static_cast<float>(rank.size - 1));
    EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
  });
}

TEST_P(NcclSplit, APartCanBeSplit) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm parent(rank);
    const ncclComm_t half = split(parent, rank.rank / 2, 0);
    const ncclComm_t alone = split(half, rank.rank, 0);
    EXPECT_EQ(size_of(alone), 1);
    EXPECT_EQ(total(3, alone), 3);
    EXPECT_EQ(ncclCommDestroy(alone), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(half), ncclSuccess);
  });
}

TEST_P(NcclSplit, AWholeIsNotNeededByItsParts) {
  expect_pass(GetParam(), [](const Rank& rank) {
    ncclComm_t parent = NCCL_COMM_NULL;
    EXPECT_EQ(ncclCommInitRank(&parent, rank.size, rank.id, rank.rank), ncclSuccess);
    const ncclComm_t part = split(parent, 0, 0);
    EXPECT_EQ(ncclCommDestroy(parent), ncclSuccess);
    EXPECT_EQ(total(1, part), static_cast<float>(rank.size));
    EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
  });
}

// The parent is in progress meanwhile, and there is no part.
TEST_P(NcclSplit, ANonBlockingSplit) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm parent(rank, /*is_blocking=*/false);
    ncclComm_t part = NCCL_COMM_NULL;
    EXPECT_EQ(ncclCommSplit(parent, 0, 0, &part, nullptr), ncclInProgress);
    EXPECT_EQ(part, nullptr);
    EXPECT_EQ(ncclCommSplit(parent, 0, 0, &part, nullptr), ncclInvalidUsage);
    EXPECT_EQ(settled(parent), ncclSuccess);
    ASSERT_NE(part, nullptr);
    const TestStream stream;
    const Floats values;
    write(values, all(1));
    EXPECT_EQ(sum(values, part, stream), ncclInProgress);  // behaves as its parent
    EXPECT_EQ(settled(part), ncclSuccess);
    EXPECT_EQ(values.values(), all(static_cast<float>(rank.size)));
    EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclSplit, ::testing::Values(1, 2, 4),
                         [](const auto& size) { return std::to_string(size.param); });

}  // namespace nccl_split_test
}  // namespace lockstep::fake_gpu
