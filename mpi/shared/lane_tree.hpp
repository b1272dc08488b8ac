// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::mpi {

/// The one order in which the values of V lanes are summed, however many ranks compute them.
///
/// A lane is a fixed part of a global batch. Lanes are summed as a binary counter would: each is laid on a stack as a
/// node of one lane; while the two topmost nodes have the same size, (lower + upper) replaces them; at the end what is
/// left is added from the top downwards, (lower + upper) each time. So an aligned block of 2^k lanes is one node of the
/// tree, and a rank that has all its lanes can sum it alone. Rank r has the consecutive lanes
/// [first_lane(r), first_lane(r + 1)) and contributes the largest such nodes among them.
class LaneTree {
 public:
  struct Node {
    int first = 0;  ///< its lowest lane
    int lanes = 1;  ///< a power of two that divides `first`
  };
  /// The operation that a rank does with one lane's values: they go into buffer `buffer` of a row of buffers; then,
  /// `merges` times, the last buffer is added to the one before it (earlier + last), which becomes the last.
  struct Step {
    int buffer = 0;
    int merges = 0;
  };

  /// @param first_lane  of each rank, ascending strictly from 0; then the number of lanes
  /// @throws std::logic_error  it is not like that
  explicit LaneTree(std::vector<int> first_lane);
  /// Deals `lanes` out evenly; the first ranks get one more where that does not come out even.
  static LaneTree even(int lanes, int world_size);

  int lanes() const noexcept { return first_lane_.back(); }
  int world_size() const noexcept { return static_cast<int>(first_lane_.size()) - 1; }
  /// @param rank  in [0, world_size]
  int first_lane(int rank) const { return first_lane_.at(static_cast<std::size_t>(rank)); }

  /// The nodes of `rank`, in lane order.
  std::span<const Node> nodes_of(int rank) const;
  /// The steps for each lane of `rank` in its order. After the last one, the buffers from 0 on hold nodes_of(rank).
  std::span<const Step> steps_of(int rank) const;
  /// Buffers that the steps of `rank` take, at least as many as nodes.
  int buffers_of(int rank) const { return buffers_.at(static_cast<std::size_t>(rank)); }

  /// The counts for the nodes of all ranks in lane order: how many times (lower + upper) is formed when each is on the
  /// stack.
  std::span<const std::uint8_t> merges() const noexcept { return merges_; }
  /// Those of one rank's nodes.
  std::span<const std::uint8_t> merges_of(int rank) const;
  /// How many nodes are on the stack before those of `rank`.
  int depth_before(int rank) const;
  /// States trees apart that deal the lanes out differently.
  std::uint32_t fingerprint() const noexcept { return fingerprint_; }

 private:
  void add_rank(int rank);

  std::vector<int> first_lane_;
  std::vector<Node> nodes_;              // nodes of all ranks
  std::vector<std::size_t> first_node_;  // first node of each rank, and the number of all nodes
  std::vector<Step> steps_;              // one step per lane
  std::vector<int> buffers_;             // number of buffers of each rank
  std::vector<std::uint8_t> merges_;     // number of merges after each node
  std::uint32_t fingerprint_ = 0;
};

/// Sums by lanes, so that the result does not depend on the number of ranks: like Collectives::start_all_reduce, with
/// the nodes tree.nodes_of(rank()) of this rank instead of one array. The nodes of all ranks are added in the order of
/// the tree, and `average` multiplies the sum once by 1/tree.lanes(). The result replaces the first node; the contents
/// of the other nodes are then unspecified. Collective.
/// @param nodes   the first node of `count` elements
/// @param stride  elements from one node to the next, at least `count`, the same on every rank
/// @param dtype   float32, float64, int32, int64 or uint8; sums of 16-bit floats would depend on the rounding
/// @param op      sum or average
/// @param tree    for world_size() ranks, equal on all of them; must outlive the ticket
/// @param by_ranges  the result is obtained by Collectives::reduce_range
Ticket start_lane_reduce(Collectives& collectives, void* nodes, std::size_t count, std::size_t stride, DType dtype,
                         ReduceOp op, const LaneTree& tree, bool by_ranges = false);

/// Does the merges of one step: the values of its lane lie in buffer `step.buffer`, and all buffers lie in a row. The
/// same bits as the merges of a lane reduction. Not collective.
/// @param buffers  the first buffer
/// @param count    elements in use of each
/// @param stride   elements from one buffer to the next, at least `count`
/// @param dtype    as for start_lane_reduce
void fold_lane(LaneTree::Step step, void* buffers, std::size_t count, std::size_t stride, DType dtype);

/// Adds one number per lane in the order in which lanes are summed. Not collective.
/// @param values  at least one
double sum_by_lanes(std::span<const double> values);

}  // namespace lockstep::mpi
