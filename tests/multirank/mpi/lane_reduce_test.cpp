// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <random>
#include <stdexcept>

#include "every_backend.hpp"
#include "mpi/shared/lane_tree.hpp"

namespace lockstep::mpi {
namespace lane_reduce_test {

constexpr std::size_t kCount = 5003;
constexpr std::size_t kStride = 5008;

template <class T>
std::vector<T> values_of_lane(int lane) {
  std::mt19937 generator(static_cast<unsigned>(lane) + 900);
  std::normal_distribution<T> normal;
  std::vector<T> values(kCount);
  for (T& value : values) value = normal(generator);
  return values;
}

/// The sum of lanes [first, first + lanes) from the definition of the tree, times `factor` at the end.
template <class T>
std::vector<T> tree_sum(int first, int lanes) {
  if (lanes == 1) return values_of_lane<T>(first);
  int lower = 1;
  while (2 * lower < lanes) lower *= 2;
  std::vector<T> sum = tree_sum<T>(first, lower);
  const std::vector<T> upper = tree_sum<T>(first + lower, lanes - lower);
  for (std::size_t i = 0; i < kCount; ++i) sum[i] = sum[i] + upper[i];
  return sum;
}

template <class T>
std::vector<T> tree_average(int lanes) {
  std::vector<T> values = tree_sum<T>(0, lanes);
  for (T& value : values) value *= T{1} / static_cast<T>(lanes);
  return values;
}

/// Computes this rank's lanes one after the other, as a trainer would.
template <class T>
void fill_nodes(const LaneTree& tree, int rank, std::byte* buffers, DType dtype) {
  for (std::size_t i = 0; i < tree.steps_of(rank).size(); ++i) {
    const LaneTree::Step step = tree.steps_of(rank)[i];
    const std::vector<T> values = values_of_lane<T>(tree.first_lane(rank) + static_cast<int>(i));
    std::memcpy(buffers + static_cast<std::size_t>(step.buffer) * kStride * sizeof(T), values.data(),
                kCount * sizeof(T));
    fold_lane(step, buffers, kCount, kStride, dtype);
  }
}

/// Even and uneven deals of `lanes` to all ranks.
std::vector<LaneTree> deals(int lanes, int world_size) {
  std::vector<LaneTree> trees = {LaneTree::even(lanes, world_size)};
  if (lanes > world_size + 1 && world_size > 1) {
    std::vector<int> first_lane(static_cast<std::size_t>(world_size) + 1);
    for (int rank = 0; rank < world_size; ++rank) first_lane[static_cast<std::size_t>(rank)] = rank;
    first_lane.back() = lanes;  // one lane each, and the last rank has all the others
    trees.emplace_back(first_lane);
  }
  return trees;
}

template <class T>
void expect_tree_averages(Collectives& collectives, int lanes, DType dtype) {
  const int rank = collectives.rank();
  const std::vector<T> expected = tree_average<T>(lanes);
  for (const LaneTree& tree : deals(lanes, collectives.world_size())) {
    int max_buffers = 0;
    for (int peer = 0; peer < tree.world_size(); ++peer) max_buffers = std::max(max_buffers, tree.buffers_of(peer));
    const std::size_t bytes = static_cast<std::size_t>(max_buffers) * kStride * sizeof(T);
    const BucketMemory bucket = collectives.allocate_bucket(bytes);
    std::vector<std::byte> outside(bytes);
    for (std::byte* const place : {bucket.bytes.data(), outside.data()}) {
      fill_nodes<T>(tree, rank, place, dtype);
      const Ticket ranges = start_lane_reduce(collectives, place, kCount, kStride, dtype, ReduceOp::average, tree,
                                              /*by_ranges=*/true);
      std::size_t next = 17;
      collectives.reduce_range(ranges, {.begin = 17, .count = kCount - 17},
                               [&](std::size_t begin, const std::byte* values, std::size_t count) {
                                 EXPECT_EQ(begin, next);
                                 EXPECT_EQ(std::memcmp(values, expected.data() + begin, count * sizeof(T)), 0);
                                 next = begin + count;
                               });
      EXPECT_EQ(next, kCount);
      collectives.barrier();

      fill_nodes<T>(tree, rank, place, dtype);
      collectives.wait(start_lane_reduce(collectives, place, kCount, kStride, dtype, ReduceOp::average, tree));
      EXPECT_EQ(std::memcmp(place, expected.data(), kCount * sizeof(T)), 0) << lanes << " lanes";
    }
  }
}

TEST(LaneReduceTest, EveryBackendDealAndNumberOfRanksHasTheBitsOfTheTree) {
  with_every_backend([](Collectives& collectives, const Communicator&) {
    for (const int lanes : {1, 3, 8, 12, 16}) {
      if (lanes < collectives.world_size()) continue;
      expect_tree_averages<float>(collectives, lanes, DType::float32);
      expect_tree_averages<double>(collectives, lanes, DType::float64);
    }
  });
}

TEST(LaneReduceTest, SumsOfIntegersAreExact) {
  with_every_backend([](Collectives& collectives, const Communicator&) {
    const LaneTree tree = LaneTree::even(8, collectives.world_size());
    std::vector<std::int64_t> nodes(8, 0);
    const auto mine = tree.nodes_of(collectives.rank());
    for (std::size_t i = 0; i < mine.size(); ++i) nodes[i] = mine[i].lanes;
    collectives.wait(start_lane_reduce(collectives, nodes.data(), 1, 1, DType::int64, ReduceOp::sum, tree));
    EXPECT_EQ(nodes[0], 8);
  });
}

TEST(LaneReduceTest, ManyInARowMixedWithOtherOperations) {
  with_every_backend([](Collectives& collectives, const Communicator&) {
    const LaneTree tree = LaneTree::even(12, collectives.world_size());
    const BucketMemory bucket = collectives.allocate_bucket(64 * sizeof(double));
    auto* const values = reinterpret_cast<double*>(bucket.bytes.data());
    const auto nodes = tree.nodes_of(collectives.rank());
    for (int round = 0; round < 300; ++round) {
      for (std::size_t i = 0; i < nodes.size(); ++i) values[2 * i] = round * nodes[i].lanes;
      const Ticket lanes = start_lane_reduce(collectives, values, 1, 2, DType::float64, ReduceOp::sum, tree);
      double other = round;
      const Ticket plain = collectives.start_all_reduce(&other, 1, DType::float64, ReduceOp::max);
      collectives.wait(lanes);
      EXPECT_EQ(values[0], 12.0 * round);
      collectives.wait(plain);
      EXPECT_EQ(other, round);
    }
  });
}

TEST(LaneReduceTest, WrongArgumentsAreMistakesInTheProgram) {
  with_every_backend([](Collectives& collectives, const Communicator&) {
    const int size = collectives.world_size();
    float value = 1;
    const LaneTree tree = LaneTree::even(size, size);
    const LaneTree larger = LaneTree::even(size + 1, size + 1);
    const auto start = [&](std::size_t stride, DType dtype, ReduceOp op, const LaneTree& lanes) {
      start_lane_reduce(collectives, &value, 1, stride, dtype, op, lanes);
    };
    EXPECT_THROW(start(0, DType::float32, ReduceOp::sum, tree), std::logic_error);
    EXPECT_THROW(start(1, DType::bfloat16, ReduceOp::sum, tree), std::logic_error);
    EXPECT_THROW(start(1, DType::float32, ReduceOp::max, tree), std::logic_error);
    EXPECT_THROW(start(1, DType::float32, ReduceOp::sum, larger), std::logic_error);
    collectives.barrier();
  });
}

}  // namespace lane_reduce_test
}  // namespace lockstep::mpi
