// SPDX-License-Identifier: BSD-3-Clause
// The values of NCCL's collectives. Small integers, so that each type represents all results.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "fake_gpu/rules/ranks.hpp"

namespace lockstep::fake_gpu {
namespace nccl_values_test {

template <class T>
void store(double value, void* target) {
  const auto typed = static_cast<T>(value);
  std::memcpy(target, &typed, sizeof typed);
}
template <class T>
double load(const void* from) {
  T typed;
  std::memcpy(&typed, from, sizeof typed);
  return static_cast<double>(typed);
}
// bfloat16 is the upper half of a float32; that of a small integer is exact.
void store_bfloat16(double value, void* target) {
  const auto wide = static_cast<float>(value);
  std::memcpy(target, reinterpret_cast<const char*>(&wide) + 2, 2);
}
double load_bfloat16(const void* from) {
  float wide = 0;
  std::memcpy(reinterpret_cast<char*>(&wide) + 2, from, 2);
  return static_cast<double>(wide);
}

struct Type {
  ncclDataType_t type;
  std::size_t bytes;
  bool is_integer;
  void (*store)(double value, void* target);
  double (*load)(const void* from);
};

constexpr Type kTypes[] = {
    {ncclInt8, 1, true, store<std::int8_t>, load<std::int8_t>},
    {ncclUint8, 1, true, store<std::uint8_t>, load<std::uint8_t>},
    {ncclInt32, 4, true, store<std::int32_t>, load<std::int32_t>},
    {ncclUint32, 4, true, store<std::uint32_t>, load<std::uint32_t>},
    {ncclInt64, 8, true, store<std::int64_t>, load<std::int64_t>},
    {ncclUint64, 8, true, store<std::uint64_t>, load<std::uint64_t>},
    {ncclFloat16, 2, false, store<_Float16>, load<_Float16>},
    {ncclFloat32, 4, false, store<float>, load<float>},
    {ncclFloat64, 8, false, store<double>, load<double>},
    {ncclBfloat16, 2, false, store_bfloat16, load_bfloat16},
};

constexpr ncclRedOp_t kOps[] = {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};

/// Values of any type in device memory.
class Values {
 public:
  Values(const Type& type, const std::vector<double>& values)
      : type_(type), count_(values.size()), memory_((values.size() * type.bytes + 3) / 4) {
    std::vector<char> host(count_ * type.bytes);
    for (std::size_t i = 0; i < count_; ++i) type.store(values[i], host.data() + i * type.bytes);
    EXPECT_EQ(cudaMemcpy(begin(), host.data(), host.size(), cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  void* begin() const { return memory_.begin(); }
  void* at(std::size_t index) const { return reinterpret_cast<char*>(memory_.begin()) + index * type_.bytes; }
  std::vector<double> read() const {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::vector<char> host(count_ * type_.bytes);
    EXPECT_EQ(cudaMemcpy(host.data(), begin(), host.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    std::vector<double> values(count_);
    for (std::size_t i = 0; i < count_; ++i) values[i] = type_.load(host.data() + i * type_.bytes);
    return values;
  }

 private:
  const Type& type_;
  std::size_t count_;
  Floats memory_;
};

/// The value that `rank` contributes at `index`: 1 to 4, so that sums, products and averages of 4 ranks are exact in
/// each type.
double contribution(int rank, std::size_t index) {
  const auto position = static_cast<std::size_t>(rank);
  return static_cast<double>(index % 3 == 0 ? position + 1 : 1 + (position + index) % 2);
}

double expected(const Type& type, ncclRedOp_t op, int ranks, std::size_t index) {
  double result = contribution(0, index);
  for (int rank = 1; rank < ranks; ++rank) {
    const double value = contribution(rank, index);
    if (op == ncclSum || op == ncclAvg) result += value;
    if (op == ncclProd) result *= value;
    if (op == ncclMax) result = std::max(result, value);
    if (op == ncclMin) result = std::min(result, value);
  }
  if (op == ncclAvg) result /= ranks;
  return type.is_integer ? static_cast<double>(static_cast<std::int64_t>(result)) : result;
}

std::vector<double> contributions(int rank, std::size_t begin, std::size_t count) {
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(contribution(rank, begin + i));
  return values;
}

std::vector<double> results(const Type& type, ncclRedOp_t op, int ranks, std::size_t begin, std::size_t count) {
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(expected(type, op, ranks, begin + i));
  return values;
}

constexpr Type kFloat = {ncclFloat32, 4, false, store<float>, load<float>};
constexpr double kUntouched = 77;

class NcclValues : public ::testing::TestWithParam<int> {};

TEST_P(NcclValues, AllReduceOfEachTypeByEachOperation) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    for (const Type& type : kTypes) {
      for (const ncclRedOp_t op : kOps) {
        const std::size_t count = 11;
        const Values send(type, contributions(rank.rank, 0, count));
        const Values recv(type, std::vector<double>(count, 0));
        EXPECT_EQ(ncclAllReduce(send.begin(), recv.begin(), count, type.type, op, comm, stream), ncclSuccess);
        EXPECT_EQ(recv.read(), results(type, op, rank.size, 0, count)) << "type " << type.type << ", operation " << op;
      }
    }
  });
}

TEST_P(NcclValues, ReduceOfEachTypeToEachRank) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    for (const Type& type : kTypes) {
      for (int root = 0; root < rank.size; ++root) {
        const Values send(type, contributions(rank.rank, 0, 5));
        const Values recv(type, std::vector<double>(5, kUntouched));
        void* const target = rank.rank == root ? recv.begin() : nullptr;
        EXPECT_EQ(ncclReduce(send.begin(), target, 5, type.type, ncclSum, root, comm, stream), ncclSuccess);
        EXPECT_EQ(recv.read(),
                  rank.rank == root ? results(type, ncclSum, rank.size, 0, 5) : std::vector<double>(5, kUntouched));
      }
    }
  });
}

TEST_P(NcclValues, BroadcastOfEachTypeFromEachRank) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    for (const Type& type : kTypes) {
      for (int root = 0; root < rank.size; ++root) {
        const Values values(type, contributions(rank.rank, 0, 5));
        EXPECT_EQ(ncclBroadcast(values.begin(), values.begin(), 5, type.type, root, comm, stream), ncclSuccess);
        EXPECT_EQ(values.read(), contributions(root, 0, 5));
      }
    }
  });
}

TEST_P(NcclValues, AllGatherOfEachType) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    for (const Type& type : kTypes) {
      const Values send(type, contributions(rank.rank, 0, 5));
      const Values recv(type, std::vector<double>(5 * static_cast<std::size_t>(rank.size), 0));
      EXPECT_EQ(ncclAllGather(send.begin(), recv.begin(), 5, type.type, comm, stream), ncclSuccess);
      std::vector<double> all_values;
      for (int peer = 0; peer < rank.size; ++peer) {
        const std::vector<double> part = contributions(peer, 0, 5);
        all_values.insert(all_values.end(), part.begin(), part.end());
      }
      EXPECT_EQ(recv.read(), all_values);
    }
  });
}

TEST_P(NcclValues, ReduceScatterOfEachTypeByEachOperation) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    for (const Type& type : kTypes) {
      for (const ncclRedOp_t op : kOps) {
        const std::size_t count = 5;
        const std::size_t total = count * static_cast<std::size_t>(rank.size);
        const Values send(type, contributions(rank.rank, 0, total));
        const Values recv(type, std::vector<double>(count, 0));
        EXPECT_EQ(ncclReduceScatter(send.begin(), recv.begin(), count, type.type, op, comm, stream), ncclSuccess);
        EXPECT_EQ(recv.read(), results(type, op, rank.size, count * static_cast<std::size_t>(rank.rank), count));
      }
    }
  });
}

// Values travel in pieces of 256 KiB.
TEST_P(NcclValues, SizesAroundThoseOfAPiece) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    const auto mine = static_cast<std::size_t>(rank.rank);
    const auto ranks = static_cast<std::size_t>(rank.size);
    for (const std::size_t count : {1, 65535, 65536, 65537, 200000}) {
      const Values reduced(kFloat, contributions(rank.rank, 0, count));
      EXPECT_EQ(ncclAllReduce(reduced.begin(), reduced.begin(), count, ncclFloat32, ncclSum, comm, stream),
                ncclSuccess);
      EXPECT_EQ(reduced.read(), results(kFloat, ncclSum, rank.size, 0, count));

      const Values scattered(kFloat, contributions(rank.rank, 0, count * ranks));
      EXPECT_EQ(
          ncclReduceScatter(scattered.begin(), scattered.at(count * mine), count, ncclFloat32, ncclSum, comm, stream),
          ncclSuccess);
      EXPECT_EQ(ncclAllGather(scattered.at(count * mine), scattered.begin(), count, ncclFloat32, comm, stream),
                ncclSuccess);
      EXPECT_EQ(scattered.read(), results(kFloat, ncclSum, rank.size, 0, count * ranks));
    }
  });
}

TEST_P(NcclValues, ManyInARow) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    const Floats values;
    write(values, all(1));
    for (int round = 0; round < 10; ++round) EXPECT_EQ(sum(values, comm, stream), ncclSuccess);
    float power = 1;
    for (int round = 0; round < 10; ++round) power *= static_cast<float>(rank.size);
    EXPECT_EQ(values.values(), all(power));
  });
}

TEST_P(NcclValues, NothingIsQueuedForNoValues) {
  expect_pass(GetParam(), [](const Rank& rank) {
    const Comm comm(rank);
    const TestStream stream;
    const std::int64_t before = counters().nccl_calls;
    if (rank.rank == 0) {  // the others need not call
      EXPECT_EQ(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, comm, stream), ncclSuccess);
    }
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(counters().nccl_calls, before);
  });
}

/// The result of two ranks that contribute `mine` and `other`.
double of_two(const Rank& rank, ncclDataType_t dtype, ncclRedOp_t op, double mine, double other) {
  const auto* const type =
      std::find_if(std::begin(kTypes), std::end(kTypes), [=](const Type& row) { return row.type == dtype; });
  const Comm comm(rank);
  const TestStream stream;
  const Values values(*type, {rank.rank == 0 ? mine : other});
  EXPECT_EQ(ncclAllReduce(values.begin(), values.begin(), 1, dtype, op, comm, stream), ncclSuccess);
  return values.read().front();
}

void expect_of_two(ncclDataType_t dtype, ncclRedOp_t op, double mine, double other, double result) {
  expect_pass(2, [=](const Rank& rank) { EXPECT_EQ(of_two(rank, dtype, op, mine, other), result); });
}

TEST(NcclArithmetic, SumsOf16BitsAreRoundedToTheNearest) {
  expect_of_two(ncclBfloat16, ncclSum, 256, 1, 256);  // 257 and 259 are halfway between two values: to the even one
  expect_of_two(ncclBfloat16, ncclSum, 256, 3, 260);
  expect_of_two(ncclFloat16, ncclSum, 2048, 1, 2048);
  expect_of_two(ncclFloat16, ncclSum, 2048, 3, 2052);
}

TEST(NcclArithmetic, SumsOf16BitsOverflow) {
  const double infinity = std::numeric_limits<double>::infinity();
  expect_of_two(ncclFloat16, ncclSum, 60000, 60000, infinity);
  expect_of_two(ncclBfloat16, ncclSum, infinity, 1, infinity);
}

TEST(NcclArithmetic, IntegersWrapAround) {
  expect_of_two(ncclInt8, ncclSum, 100, 100, -56);
  expect_of_two(ncclUint8, ncclSum, 200, 100, 44);
  expect_of_two(ncclInt32, ncclProd, 65536, 65537, 65536);
}

TEST(NcclArithmetic, AMaximumLeavesOutWhatIsNotANumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const ncclDataType_t dtype : {ncclFloat16, ncclBfloat16, ncclFloat32, ncclFloat64}) {
    expect_of_two(dtype, ncclMax, nan, 3, 3);
    expect_of_two(dtype, ncclMin, 3, nan, 3);
  }
}

TEST(NcclArithmetic, ASumKeepsWhatIsNotANumber) {
  for (const ncclDataType_t dtype : {ncclFloat16, ncclBfloat16, ncclFloat32, ncclFloat64}) {
    expect_pass(2, [=](const Rank& rank) {
      EXPECT_TRUE(std::isnan(of_two(rank, dtype, ncclSum, 3, std::numeric_limits<double>::quiet_NaN())));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclValues, ::testing::Values(1, 2, 4),
                         [](const auto& size) { return std::to_string(size.param); });

}  // namespace nccl_values_test
}  // namespace lockstep::fake_gpu
