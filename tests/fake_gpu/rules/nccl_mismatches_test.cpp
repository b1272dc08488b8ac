// SPDX-License-Identifier: BSD-3-Clause
// Ranks that do not go together, and memory that NCCL cannot use.
#include "fake_gpu/rules/ranks.hpp"

namespace lockstep::fake_gpu {
namespace nccl_mismatches_test {

// ---- ranks that do not go together

TEST(NcclMismatches, TwoRanksOnOneGpu) {
  for (const bool is_blocking : {true, false}) {
    expect_pass(2, [is_blocking](const Rank& rank) {
      setenv("NCCL_HOSTID", "one", 1);
      ncclComm_t comm = NCCL_COMM_NULL;
      EXPECT_EQ(init(rank, is_blocking, &comm), ncclInvalidUsage);
      EXPECT_NE(last_error().find("Duplicate GPU detected"), std::string::npos) << last_error();
      EXPECT_EQ(comm == NCCL_COMM_NULL, is_blocking);
      EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    });
  }
}

TEST(NcclMismatches, TwoGpusOfOneHost) {
  expect_pass(2, [](const Rank& rank) {
    int devices = 0;
    EXPECT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
    ASSERT_GE(devices, 2) << "FAKE_GPU_DEVICES must be 2";
    setenv("NCCL_HOSTID", "one", 1);
    EXPECT_EQ(cudaSetDevice(rank.rank), cudaSuccess);
    const Comm comm(rank);
    const TestStream stream;
    const Floats values;
    write(values, all(1));
    EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
    EXPECT_EQ(values.values(), all(2));
  });
}

TEST(NcclMismatches, ARankThatIsTaken) {
  expect_pass(1, [](const Rank& rank) {
    ncclComm_t first = NCCL_COMM_NULL;
    ncclComm_t second = NCCL_COMM_NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT_EQ(ncclCommInitRankConfig(&first, 2, rank.id, 0, &config), ncclInProgress);
    EXPECT_EQ(ncclCommInitRankConfig(&second, 2, rank.id, 0, &config), ncclInvalidUsage);
    EXPECT_EQ(second, nullptr);
    EXPECT_EQ(ncclCommAbort(first), ncclSuccess);
  });
}

TEST(NcclMismatches, ADifferentNumberOfRanks) {
  expect_pass(2, [](const Rank& rank) {
    // Each waits for as many as it knows of: a rank that knows of fewer finds out first.
    Rank mistaken = rank;
    mistaken.size = rank.rank == 0 ? 1 : 2;
    mistaken.rank = rank.rank;
    if (rank.rank == 1) rank.meet();
    ncclComm_t comm = NCCL_COMM_NULL;
    const ncclResult_t result = init(mistaken, /*is_blocking=*/true, &comm);
    EXPECT_EQ(result, rank.rank == 0 ? ncclSuccess : ncclInvalidUsage) << last_error();
    if (rank.rank == 0) rank.meet();
  });
}

TEST(NcclMismatches, AnIdThatWasUsedBefore) {
  expect_pass(1, [](const Rank& rank) {
    ncclUniqueId id = {};
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ncclComm_t comm = NCCL_COMM_NULL;
    EXPECT_EQ(ncclCommInitRank(&comm, 1, id, rank.rank), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    EXPECT_EQ(ncclCommInitRank(&comm, 1, id, rank.rank), ncclSystemError);
    ncclUniqueId next = {};
    EXPECT_EQ(ncclGetUniqueId(&next), ncclSuccess);  // may have the same descriptor
    EXPECT_EQ(ncclCommInitRank(&comm, 1, id, rank.rank), ncclSystemError);
    EXPECT_EQ(comm, nullptr);
  });
}

TEST(NcclMismatches, ArgumentsThatDoNotExist) {
  expect_pass(1, [](const Rank& rank) {
    ncclComm_t comm = NCCL_COMM_NULL;
    EXPECT_EQ(ncclCommInitRank(&comm, 2, rank.id, 2), ncclInvalidArgument);
    EXPECT_EQ(ncclCommInitRank(&comm, 0, rank.id, 0), ncclInvalidArgument);
    ncclConfig_t config = {};  // not by NCCL_CONFIG_INITIALIZER
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, rank.id, 0, &config), ncclInvalidArgument);
    const Comm whole(rank);
    const TestStream stream;
    const Floats values;
    float* const begin = values.begin();
    const auto no_type = static_cast<ncclDataType_t>(12);
    const auto no_op = static_cast<ncclRedOp_t>(7);
    EXPECT_EQ(ncclAllReduce(begin, begin, 4, no_type, ncclSum, whole, stream), ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(begin, begin, 4, ncclFloat32, no_op, whole, stream), ncclInvalidArgument);
    EXPECT_EQ(ncclBroadcast(begin, begin, 4, ncclFloat32, 1, whole, stream), ncclInvalidArgument);
    EXPECT_EQ(ncclBroadcast(begin, begin, 4, ncclFloat32, -1, whole, stream), ncclInvalidArgument);
    EXPECT_EQ(sum(values, NCCL_COMM_NULL, stream), ncclInvalidArgument);
  });
}

TEST(NcclMismatches, ACommunicatorIsDestroyedOnce) {
  expect_pass(1, [](const Rank& rank) {
    ncclComm_t comm = NCCL_COMM_NULL;
    EXPECT_EQ(init(rank, true, &comm), ncclSuccess);
    EXPECT_EQ(ncclCommFinalize(comm), ncclSuccess);
    const TestStream stream;
    const Floats values;
    EXPECT_EQ(sum(values, comm, stream), ncclInvalidUsage);
    EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidUsage);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
    EXPECT_EQ(ncclCommAbort(comm), ncclInvalidArgument);
    EXPECT_EQ(ncclCommDestroy(NCCL_COMM_NULL), ncclSuccess);
  });
}

// ---- different calls on two ranks, which real NCCL does not notice

struct Difference {
  const char* name;
  const char* first;   ///< the call of rank 0
  const char* second;  ///< the call of rank 1
  void (*call)(const Rank& rank, const Floats& values, ncclComm_t comm, cudaStream_t stream);
};

constexpr Difference kDifferences[] = {
    {"Kind", "ncclBroadcast of 4 float32 values from rank 0", "ncclAllReduce of 4 float32 values (sum)",
     [](const Rank& rank, const Floats& values, ncclComm_t comm, cudaStream_t stream) {
       float* const begin = values.begin();
       rank.rank == 0 ? ncclBroadcast(begin, begin, 4, ncclFloat32, 0, comm, stream)
                      : ncclAllReduce(begin, begin, 4, ncclFloat32, ncclSum, comm, stream);
     }},
    {"Count", "ncclAllReduce of 1 float32 value (sum)", "ncclAllReduce of 2 float32 values (sum)",
     [](const Rank& rank, const Floats& values, ncclComm_t comm, cudaStream_t stream) {
       const std::size_t count = rank.rank == 0 ? 1 : 2;
       ncclAllReduce(values.begin(), values.begin(), count, ncclFloat32, ncclSum, comm, stream);
     }},
    {"Type", "ncclAllReduce of 2 bfloat16 values (sum)", "ncclAllReduce of 2 float16 values (sum)",
     [](const Rank& rank, const Floats& values, ncclComm_t comm, cudaStream_t stream) {
       const ncclDataType_t type = rank.rank == 0 ? ncclBfloat16 : ncclFloat16;
       ncclAllReduce(values.begin(), values.begin(), 2, type, ncclSum, comm, stream);
     }},
    {"Operation", "ncclAllReduce of 2 float32 values (average)", "ncclAllReduce of 2 float32 values (sum)",
     [](const Rank& rank, const Floats& values, ncclComm_t comm, cudaStream_t stream) {
       const ncclRedOp_t op = rank.rank == 0 ? ncclAvg : ncclSum;
       ncclAllReduce(values.begin(), values.begin(), 2, ncclFloat32, op, comm, stream);
     }},
    {"Root", "ncclReduce of 2 float32 values (max) to rank 0", "ncclReduce of 2 float32 values (max) to rank 1",
     [](const Rank& rank, const Floats& values, ncclComm_t comm, cudaStream_t stream) {
       ncclReduce(values.begin(), values.begin(), 2, ncclFloat32, ncclMax, rank.rank, comm, stream);
     }},
    {"Order", "ncclAllReduce of 1 float32 value (sum)", "ncclAllReduce of 2 float32 values (sum)",
     [](const Rank& rank, const Floats& values, ncclComm_t comm, cudaStream_t stream) {
       const std::size_t first = rank.rank == 0 ? 1 : 2;
       ncclAllReduce(values.begin(), values.begin(), first, ncclFloat32, ncclSum, comm, stream);
       ncclAllReduce(values.begin(), values.begin(), 3 - first, ncclFloat32, ncclSum, comm, stream);
     }},
};

class NcclDifferences : public ::testing::TestWithParam<Difference> {};

TEST_P(NcclDifferences, EndTheProcesses) {
  const Difference& difference = GetParam();
  const std::vector<Ended> ended = run_ranks(2, [&difference](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    const Floats values;
    difference.call(rank, values, comm, stream);
    cudaStreamSynchronize(stream);
  });
  for (const Ended& process : ended) {
    EXPECT_EQ(process.code, kRaceExit);
    for (const std::string& made :
         {std::string("rank 0 made ") + difference.first, std::string("rank 1 made ") + difference.second}) {
      EXPECT_NE(process.text.find(made), std::string::npos) << process.text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, NcclDifferences, ::testing::ValuesIn(kDifferences),
                         [](const auto& difference) { return difference.param.name; });

// ---- memory

TEST(NcclMismatches, MemoryOfTheHostThatIsNotPinned) {
  expect_all_broken(1, "has a receive buffer that the GPU cannot access", [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    const Floats send;
    std::vector<float> recv = all(0);
    ncclAllReduce(send.begin(), recv.data(), 4, ncclFloat32, ncclSum, comm, stream);
  });
}

TEST(NcclMismatches, BuffersThatOverlap) {
  expect_all_broken(1, "has buffers that overlap", [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    const Floats values(8);
    ncclAllReduce(values.begin(), values.begin() + 1, 4, ncclFloat32, ncclSum, comm, stream);
  });
}

TEST(NcclMismatches, MemoryThatWasFreed) {
  expect_all_broken(1, "not allocated", [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    void* freed = nullptr;
    EXPECT_EQ(ncclMemAlloc(&freed, 16), ncclSuccess);
    EXPECT_EQ(ncclMemFree(freed), ncclSuccess);
    const Floats recv;
    ncclAllReduce(freed, recv.begin(), 4, ncclFloat32, ncclSum, comm, stream);
  });
}

TEST(NcclMismatches, MemoryOfNcclIsFreedAfterTheWorkThatUsesIt) {
  const auto use_and_free = [](bool waits) {
    const TestStream stream;
    void* memory = nullptr;
    EXPECT_EQ(ncclMemAlloc(&memory, 16), ncclSuccess);
    EXPECT_EQ(cudaMemsetAsync(memory, 0, 16, stream), cudaSuccess);
    if (waits) {
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
    EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
  };
  expect_all_broken(1, "race: 'ncclMemFree' writes 16 bytes", [&](const Rank&) { use_and_free(false); });
  expect_pass(1, [&](const Rank&) { use_and_free(true); });
}

TEST(NcclMismatches, CollectivesTakePartInRaces) {
  expect_all_broken(2, "race: 'look' reads 16 bytes", [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    const TestStream other;
    const Floats values;
    write(values, all(1));
    EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
    rank.meet();
    look(other, values);
  });
}

TEST(NcclMismatches, MemoryOfNcclIsThatOfTheDevice) {
  expect_pass(1, [](const Rank& rank) {
    const Comm comm(rank);
    const std::int64_t before = counters().device_allocations;
    void* memory = nullptr;
    void* registration = nullptr;
    EXPECT_EQ(ncclMemAlloc(&memory, 4096), ncclSuccess);
    EXPECT_EQ(counters().device_allocations, before + 1);
    EXPECT_EQ(ncclCommRegister(comm, memory, 4096, &registration), ncclSuccess);
    EXPECT_EQ(ncclCommDeregister(comm, registration), ncclSuccess);
    EXPECT_EQ(ncclCommDeregister(comm, registration), ncclInvalidUsage);
    EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
    EXPECT_EQ(ncclMemAlloc(&memory, total + 1), ncclUnhandledCudaError);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  });
}

}  // namespace nccl_mismatches_test
}  // namespace lockstep::fake_gpu
