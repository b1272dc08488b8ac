// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/shared/lane_tree.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "mpi/shared/job.hpp"

namespace lockstep::mpi {
namespace lane_tree_test {

/// "0+2 2+1": first lane and number of lanes of each node.
std::string nodes_of(const LaneTree& tree, int rank) {
  std::string text;
  for (const LaneTree::Node& node : tree.nodes_of(rank)) {
    text += (text.empty() ? "" : " ") + std::to_string(node.first) + "+" + std::to_string(node.lanes);
  }
  return text;
}

TEST(LaneTreeTest, RanksContributeTheLargestAlignedBlocks) {
  const LaneTree even({0, 4, 8});
  EXPECT_EQ(even.lanes(), 8);
  EXPECT_EQ(even.world_size(), 2);
  EXPECT_EQ(nodes_of(even, 0), "0+4");
  EXPECT_EQ(nodes_of(even, 1), "4+4");
  const LaneTree uneven({0, 3, 6, 8});
  EXPECT_EQ(nodes_of(uneven, 0), "0+2 2+1");
  EXPECT_EQ(nodes_of(uneven, 1), "3+1 4+2");  // 3 and 4 are no halves of one block
  EXPECT_EQ(nodes_of(uneven, 2), "6+2");
  EXPECT_EQ(nodes_of(LaneTree({0, 12}), 0), "0+8 8+4");
  EXPECT_EQ(nodes_of(LaneTree({0, 1, 15}), 1), "1+1 2+2 4+4 8+4 12+2 14+1");
}

TEST(LaneTreeTest, DealsLanesOutEvenly) {
  const LaneTree tree = LaneTree::even(8, 3);
  EXPECT_EQ(tree.first_lane(0), 0);
  EXPECT_EQ(tree.first_lane(1), 3);
  EXPECT_EQ(tree.first_lane(2), 6);
  EXPECT_EQ(tree.first_lane(3), 8);
  EXPECT_EQ(tree.fingerprint(), LaneTree({0, 3, 6, 8}).fingerprint());
  EXPECT_NE(tree.fingerprint(), LaneTree({0, 2, 6, 8}).fingerprint());
  EXPECT_THROW(LaneTree::even(2, 3), std::logic_error);
}

TEST(LaneTreeTest, RefusesLanesThatAreNoIntervals) {
  EXPECT_THROW(LaneTree({}), std::logic_error);
  EXPECT_THROW(LaneTree({0}), std::logic_error);
  EXPECT_THROW(LaneTree({1, 2}), std::logic_error);
  EXPECT_THROW(LaneTree({0, 2, 2}), std::logic_error);
}

TEST(LaneTreeTest, StepsAreThoseOfABinaryCounter) {
  const LaneTree tree({0, 4});
  const int buffers[] = {0, 1, 1, 2};
  const int merges[] = {0, 1, 0, 2};
  for (std::size_t lane = 0; lane < 4; ++lane) {
    EXPECT_EQ(tree.steps_of(0)[lane].buffer, buffers[lane]);
    EXPECT_EQ(tree.steps_of(0)[lane].merges, merges[lane]);
  }
  EXPECT_EQ(tree.buffers_of(0), 3);
  EXPECT_EQ(LaneTree({0, 1}).buffers_of(0), 1);
  EXPECT_EQ(LaneTree({0, 16}).buffers_of(0), 5);
}

/// The sum of lanes [0, lanes), straight from the definition: left subtrees are full, right ones what is left.
template <class T>
T tree_sum(const std::vector<T>& values, std::size_t first, std::size_t lanes) {
  if (lanes == 1) return values[first];
  std::size_t lower = 1;
  while (2 * lower < lanes) lower *= 2;
  return tree_sum(values, first, lower) + tree_sum(values, first + lower, lanes - lower);
}

/// Folds each rank's lanes into its nodes, and combines all nodes.
template <class T>
T sum_over_ranks(const LaneTree& tree, const std::vector<T>& values, DType dtype) {
  std::vector<T> nodes;
  for (int rank = 0; rank < tree.world_size(); ++rank) {
    std::vector<T> buffers(static_cast<std::size_t>(tree.buffers_of(rank)) * 2, T{-1});  // a stride of 2
    for (std::size_t i = 0; i < tree.steps_of(rank).size(); ++i) {
      const LaneTree::Step step = tree.steps_of(rank)[i];
      buffers[2 * static_cast<std::size_t>(step.buffer)] = values[static_cast<std::size_t>(tree.first_lane(rank)) + i];
      fold_lane(step, buffers.data(), 1, 2, dtype);
    }
    for (std::size_t node = 0; node < tree.nodes_of(rank).size(); ++node) nodes.push_back(buffers[2 * node]);
  }
  std::vector<const std::byte*> sources;
  for (const T& node : nodes) sources.push_back(reinterpret_cast<const std::byte*>(&node));
  T result{};
  auto* const target = reinterpret_cast<std::byte*>(&result);
  reduce(sources, std::span(&target, 1), 1, {.dtype = dtype, .op = ReduceOp::sum, .merges = tree.merges()});
  return result;
}

template <class T>
void expect_same_sums(DType dtype) {
  std::mt19937 generator(5);
  std::normal_distribution<T> normal;
  for (const int lanes : {1, 2, 3, 5, 8, 12, 16, 31, 64}) {
    std::vector<T> values(static_cast<std::size_t>(lanes));
    for (T& value : values) value = normal(generator);
    const T expected = tree_sum(values, 0, values.size());
    for (int world_size = 1; world_size <= std::min(lanes, 7); ++world_size) {
      EXPECT_EQ(sum_over_ranks(LaneTree::even(lanes, world_size), values, dtype), expected)
          << lanes << " lanes, " << world_size << " ranks";
    }
    if (lanes < 5) continue;
    EXPECT_EQ(sum_over_ranks(LaneTree({0, 1, 4, lanes}), values, dtype), expected) << lanes;
    EXPECT_EQ(sum_over_ranks(LaneTree({0, lanes - 1, lanes}), values, dtype), expected) << lanes;
  }
}

TEST(LaneTreeTest, EveryDealHasTheBitsOfTheTree) {
  expect_same_sums<float>(DType::float32);
  expect_same_sums<double>(DType::float64);
}

TEST(LaneTreeTest, OneNumberPerLaneHasTheBitsOfTheTree) {
  std::mt19937 generator(7);
  std::normal_distribution<double> normal;
  std::vector<double> values;
  while (values.size() < 100) {
    values.push_back(normal(generator));
    EXPECT_EQ(sum_by_lanes(values), tree_sum(values, 0, values.size())) << values.size();
  }
}

TEST(LaneTreeTest, SixteenBitSumsAreRefused) {
  std::uint16_t buffers[2] = {};
  EXPECT_THROW(fold_lane({.buffer = 1, .merges = 1}, buffers, 1, 1, DType::bfloat16), std::logic_error);
}

}  // namespace lane_tree_test
}  // namespace lockstep::mpi
