// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/shared/lane_tree.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <stdexcept>
#include <string>

#include "mpi/shared/job.hpp"

namespace lockstep::mpi {

namespace {

using Node = LaneTree::Node;

/// Whether two neighbors are the halves of one node.
bool are_halves(const Node& lower, const Node& upper) {
  return lower.lanes == upper.lanes && lower.first % (2 * lower.lanes) == 0;
}

/// Lays a node on the stack and merges what is complete.
/// @return  the number of merges
int push(std::vector<Node>& stack, Node node) {
  int merges = 0;
  for (; !stack.empty() && are_halves(stack.back(), node); ++merges) {
    node = {.first = stack.back().first, .lanes = 2 * node.lanes};
    stack.pop_back();
  }
  stack.push_back(node);
  return merges;
}

std::uint32_t hash_of(const std::vector<int>& numbers) {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const int number : numbers) hash = (hash ^ static_cast<std::uint32_t>(number)) * 16777619U;
  return hash;
}

}  // namespace

LaneTree::LaneTree(std::vector<int> first_lane)
    : first_lane_(std::move(first_lane)), fingerprint_(hash_of(first_lane_)) {
  const bool is_ascending =
      std::adjacent_find(first_lane_.begin(), first_lane_.end(), std::greater_equal<>()) == first_lane_.end();
  if (first_lane_.size() < 2 || first_lane_.front() != 0 || !is_ascending) {
    throw std::logic_error("comm: the first lanes of the ranks must be in ascending order from 0");
  }
  first_node_.push_back(0);
  for (int rank = 0; rank < world_size(); ++rank) add_rank(rank);

  std::vector<Node> stack;
  for (const Node& node : nodes_) merges_.push_back(static_cast<std::uint8_t>(push(stack, node)));
  merges_.back() = static_cast<std::uint8_t>(merges_.back() + stack.size() - 1);
}

void LaneTree::add_rank(int rank) {
  std::vector<Node> stack;
  std::size_t max_buffers = 0;
  for (int lane = first_lane(rank); lane < first_lane(rank + 1); ++lane) {
    const auto buffer = static_cast<int>(stack.size());
    max_buffers = std::max(max_buffers, stack.size() + 1);
    steps_.push_back({.buffer = buffer, .merges = push(stack, {.first = lane, .lanes = 1})});
  }
  nodes_.insert(nodes_.end(), stack.begin(), stack.end());
  first_node_.push_back(nodes_.size());
  buffers_.push_back(static_cast<int>(max_buffers));
}

LaneTree LaneTree::even(int lanes, int world_size) {
  if (world_size < 1 || lanes < world_size) {
    throw std::logic_error("comm: " + std::to_string(lanes) + " lanes cannot be distributed to " +
                           std::to_string(world_size) + " ranks");
  }
  std::vector<int> first_lane;
  for (int rank = 0; rank <= world_size; ++rank) {
    first_lane.push_back(rank * (lanes / world_size) + std::min(rank, lanes % world_size));
  }
  return LaneTree(std::move(first_lane));
}

std::span<const LaneTree::Node> LaneTree::nodes_of(int rank) const {
  const std::size_t begin = first_node_.at(static_cast<std::size_t>(rank));
  return std::span(nodes_).subspan(begin, first_node_.at(static_cast<std::size_t>(rank) + 1) - begin);
}

std::span<const LaneTree::Step> LaneTree::steps_of(int rank) const {
  const int begin = first_lane(rank);
  return std::span(steps_).subspan(static_cast<std::size_t>(begin),
                                   static_cast<std::size_t>(first_lane(rank + 1) - begin));
}

std::span<const std::uint8_t> LaneTree::merges_of(int rank) const {
  const std::size_t begin = first_node_.at(static_cast<std::size_t>(rank));
  return std::span(merges_).subspan(begin, nodes_of(rank).size());
}

/// A binary counter at n has a node for each one among the digits of n.
int LaneTree::depth_before(int rank) const { return std::popcount(static_cast<unsigned>(first_lane(rank))); }

Ticket start_lane_reduce(Collectives& collectives, void* nodes, std::size_t count, std::size_t stride, DType dtype,
                         ReduceOp op, const LaneTree& tree, bool by_ranges) {
  require_lane_reducible(dtype, op);
  if (tree.world_size() != collectives.world_size() || stride < count) {
    throw std::logic_error("comm: lanes of " + std::to_string(tree.world_size()) + " ranks in a world of " +
                           std::to_string(collectives.world_size()) + ", nodes of " + std::to_string(count) +
                           " elements " + std::to_string(stride) + " apart");
  }
  return collectives.start({.call = {.count = count,
                                     .lanes = tree.lanes(),
                                     .layout = tree.fingerprint(),
                                     .stride = stride,
                                     .kind = by_ranges ? CallKind::reduce_ranges : CallKind::all_reduce,
                                     .op = op,
                                     .dtype = dtype},
                            .values = static_cast<std::byte*>(nodes),
                            .tree = &tree});
}

void fold_lane(LaneTree::Step step, void* buffers, std::size_t count, std::size_t stride, DType dtype) {
  require_lane_reducible(dtype, ReduceOp::sum);
  if (step.merges == 0) return;
  std::byte* const target =
      static_cast<std::byte*>(buffers) + static_cast<std::size_t>(step.buffer - step.merges) * stride * size_of(dtype);
  const auto size = static_cast<std::size_t>(step.merges) + 1;
  std::vector<const std::byte*> sources;
  for (std::size_t i = 0; i < size; ++i) sources.push_back(target + i * stride * size_of(dtype));
  std::vector<std::uint8_t> merges(size, 0);  // all on the stack, then from the top downwards
  merges.back() = static_cast<std::uint8_t>(step.merges);
  reduce(sources, std::span(&target, 1), count, {.dtype = dtype, .op = ReduceOp::sum, .merges = merges});
}

double sum_by_lanes(std::span<const double> values) {
  const auto lanes = static_cast<int>(values.size());
  const LaneTree tree = LaneTree::even(lanes, lanes);  // as if each lane had a rank
  std::vector<const std::byte*> sources;
  for (const double& value : values) sources.push_back(reinterpret_cast<const std::byte*>(&value));
  double sum = 0;
  auto* const target = reinterpret_cast<std::byte*>(&sum);
  reduce(sources, std::span(&target, 1), 1, {.dtype = DType::float64, .op = ReduceOp::sum, .merges = tree.merges()});
  return sum;
}

}  // namespace lockstep::mpi
