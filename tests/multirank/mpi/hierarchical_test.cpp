// SPDX-License-Identifier: BSD-3-Clause
// Hosts of every shape on one machine.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "mpi/host/host_chain.hpp"
#include "mpi/host/host_collectives.hpp"
#include "mpi/shared/lane_tree.hpp"

namespace lockstep::mpi {
namespace hierarchical_test {

constexpr std::size_t kCount = 300'011;  // several pieces on each link
constexpr WaitOptions kWait{.timeout_s = 60};

std::vector<float> random_values(int rank) {
  std::mt19937 generator(static_cast<unsigned>(rank) + 70);
  std::normal_distribution<float> normal;
  std::vector<float> values(kCount);
  for (float& value : values) value = normal(generator);
  return values;
}

/// Different ways to place the ranks on hosts: one, consecutive, by parity, one alone, each alone, and back and forth.
std::vector<std::vector<int>> placements(int world_size) {
  std::vector<std::vector<int>> all(6);
  for (int rank = 0; rank < world_size; ++rank) {
    all[0].push_back(0);
    all[1].push_back(2 * rank / world_size);
    all[2].push_back(rank % 2);
    all[3].push_back(rank == 0 ? 7 : 3);  // hosts of different sizes
    all[4].push_back(rank);
    all[5].push_back(rank == 0 || rank == 3 ? 0 : 1);
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

/// Runs `body(collectives)` with every placement.
template <class Body>
void with_every_placement(Body body) {
  const auto world = Communicator::world();
  for (const std::vector<int>& hosts : placements(world.size())) {
    std::string name;
    for (const int host : hosts) name += std::to_string(host);
    SCOPED_TRACE("hosts " + name);
    const auto collectives = make_hierarchical_collectives(Communicator(world.handle()), hosts, kWait);
    body(*collectives);
  }
}

TEST(HostLayoutTest, FindsSegmentsAndNumbersHostsByTheirLowestRank) {
  const HostLayout layout({5, 5, 2, 5, 9, 9});
  EXPECT_EQ(layout.host_count(), 3);
  EXPECT_EQ(layout.host_of(0), 0);
  EXPECT_EQ(layout.host_of(2), 1);
  EXPECT_EQ(layout.host_of(4), 2);
  EXPECT_EQ(layout.ranks_of(0), (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(layout.local_rank_of(3), 2);
  EXPECT_EQ(layout.carriers(), 1);
  ASSERT_EQ(layout.segments().size(), 4U);
  EXPECT_EQ(layout.segments()[0].end, 2);
  EXPECT_EQ(layout.segments()[2].host, 0);
  EXPECT_EQ(layout.segments()[3].begin, 4);
}

// Case 123.
TEST(HierarchicalTest, EveryPlacementHasTheBitsOfTheFlatResult) {
  const auto world = Communicator::world();
  std::vector<float> expected = random_values(world.rank());
  make_mpi_collectives(Communicator(world.handle()), kWait)
      ->all_reduce(expected.data(), kCount, DType::float32, ReduceOp::average);
  const std::vector<float> mine = random_values(world.rank());
  with_every_placement([&](Collectives& collectives) {
    const BucketMemory bucket = collectives.allocate_bucket(kCount * sizeof(float) + 64);
    std::vector<std::byte> outside(bucket.bytes.size());
    for (std::byte* const place : {bucket.bytes.data(), bucket.bytes.data() + 12, outside.data()}) {
      std::memcpy(place, mine.data(), kCount * sizeof(float));
      collectives.all_reduce(place, kCount, DType::float32, ReduceOp::average);
      EXPECT_EQ(std::memcmp(place, expected.data(), kCount * sizeof(float)), 0);

      std::memcpy(place, mine.data(), kCount * sizeof(float));
      const Ticket ticket = collectives.start_reduce_ranges(place, kCount, DType::float32, ReduceOp::average);
      const Slice slice = slice_of(kCount, collectives.local_rank(), collectives.local_size(), sizeof(float));
      for (const Slice range : {Slice{.begin = kCount - 3, .count = 3}, slice, Slice{.begin = 0, .count = kCount}}) {
        std::size_t next = range.begin;
        collectives.reduce_range(ticket, range, [&](std::size_t begin, const std::byte* values, std::size_t count) {
          EXPECT_EQ(begin, next);
          EXPECT_EQ(std::memcmp(values, expected.data() + begin, count * sizeof(float)), 0);
          next = begin + count;
        });
        EXPECT_EQ(next, range.begin + range.count);
      }
      collectives.barrier();
    }
  });
}

// Case 110: partial sums must not be rounded on their way between hosts.
TEST(HierarchicalTest, EveryPlacementRoundsSixteenBitFloatsOnce) {
  const auto world = Communicator::world();
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    const auto round = dtype == DType::bfloat16 ? float_to_bfloat16 : float_to_half;
    std::vector<std::uint16_t> mine;
    for (const float value : random_values(world.rank())) mine.push_back(round(value));
    for (const ReduceOp op : {ReduceOp::average, ReduceOp::product, ReduceOp::max}) {
      std::vector<std::uint16_t> expected = mine;
      make_mpi_collectives(Communicator(world.handle()), kWait)->all_reduce(expected.data(), kCount, dtype, op);
      with_every_placement([&](Collectives& collectives) {
        std::vector<std::uint16_t> values = mine;
        collectives.all_reduce(values.data(), kCount, dtype, op);
        EXPECT_TRUE(values == expected);
      });
    }
  }
}

TEST(HierarchicalTest, EveryPlacementHasTheBitsOfTheLaneTree) {
  const auto world = Communicator::world();
  for (const int lanes : {4, 5, 8, 13}) {
    if (lanes < world.size()) continue;
    const LaneTree tree = LaneTree::even(lanes, world.size());
    const std::size_t nodes = tree.nodes_of(world.rank()).size();
    std::vector<float> mine;
    for (std::size_t node = 0; node < nodes; ++node) {
      const int number = 10 * world.rank() + static_cast<int>(node);
      const std::vector<float> values = random_values(number);
      mine.insert(mine.end(), values.begin(), values.end());
    }
    const auto reduce = [&](Collectives& collectives, void* values) {
      collectives.wait(start_lane_reduce(collectives, values, kCount, kCount, DType::float32, ReduceOp::average, tree));
    };
    std::vector<float> expected = mine;
    reduce(*make_mpi_collectives(Communicator(world.handle()), kWait), expected.data());
    with_every_placement([&](Collectives& collectives) {
      const BucketMemory bucket = collectives.allocate_bucket(8 * kCount * sizeof(float));
      std::vector<std::byte> outside(mine.size() * sizeof(float));
      for (std::byte* const place : {bucket.bytes.data(), outside.data()}) {
        std::memcpy(place, mine.data(), mine.size() * sizeof(float));
        reduce(collectives, place);
        EXPECT_EQ(std::memcmp(place, expected.data(), kCount * sizeof(float)), 0) << lanes << " lanes";
      }
    });
  }
}

TEST(HierarchicalTest, ASplitKeepsTheHosts) {
  const auto world = Communicator::world();
  with_every_placement([&](Collectives& collectives) {
    const auto part = collectives.split(world.rank() / 2);
    EXPECT_EQ(part->name(), "hierarchical");
    EXPECT_LE(part->local_size(), std::min(part->world_size(), collectives.local_size()));
    float value = 1;
    part->all_reduce(&value, 1, DType::float32, ReduceOp::sum);
    EXPECT_EQ(value, static_cast<float>(part->world_size()));
    collectives.barrier();
  });
}

std::string error_of(const std::function<void()>& step) {
  try {
    step();
    return "";
  } catch (const CommError& error) {
    return error.what();
  }
}

// Case 115.
TEST(HierarchicalTest, ADisagreementInsideAHostIsNamedOnAllHosts) {
  const auto world = Communicator::world();
  if (world.size() != 4) return;
  const auto collectives = make_hierarchical_collectives(Communicator(world.handle()), {0, 0, 1, 1}, {.timeout_s = 20});
  std::vector<float> values(4);
  const std::size_t count = world.rank() == 3 ? 3 : 4;
  const std::string error =
      error_of([&] { collectives->all_reduce(values.data(), count, DType::float32, ReduceOp::sum); });
  EXPECT_EQ(
      error.substr(error.find("the ranks")),
      "the ranks call different operations: rank 2 called all_reduce #1 of 4 float32 (sum), rank 3 called all_reduce "
      "#1 of 3 float32 (sum)");
  world.barrier();
}

TEST(HierarchicalTest, ALateHostIsNamed) {
  const auto world = Communicator::world();
  if (world.size() != 4) return;
  const auto collectives =
      make_hierarchical_collectives(Communicator(world.handle()), {0, 0, 1, 1}, {.timeout_s = 0.5});
  collectives->barrier();
  std::string error;
  if (world.rank() < 2) error = error_of([&] { collectives->barrier(); });
  world.barrier();
  if (world.rank() < 2) {
    EXPECT_NE(error.find("in barrier #2 for the host of rank 2"), std::string::npos) << error;
  }
}

}  // namespace hierarchical_test
}  // namespace lockstep::mpi
