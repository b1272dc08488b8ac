// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "mpi/shared/call.hpp"
#include "mpi/shared/lane_tree.hpp"
#include "mpi/shared/reduction.hpp"

namespace lockstep::mpi {

/// A call of this rank, with its memory.
struct Job {
  Call call;
  std::byte* values = nullptr;     ///< values: what is reduced, broadcast or contributed
  std::byte* result = nullptr;     ///< memory that all_gather and reduce_scatter write to
  const LaneTree* tree = nullptr;  ///< tree of a sum by lanes

  std::size_t element_bytes() const { return size_of(call.dtype); }
  /// How many arrays `rank` contributes to a reduction. They lie node_bytes() apart.
  std::size_t nodes_of(int rank) const { return tree == nullptr ? 1 : tree->nodes_of(rank).size(); }
  /// How many the rank with the most contributes.
  std::size_t max_nodes() const {
    std::size_t max = 1;
    for (int rank = 0; tree != nullptr && rank < tree->world_size(); ++rank) max = std::max(max, nodes_of(rank));
    return max;
  }
  std::size_t node_bytes() const { return call.stride * element_bytes(); }
  /// The bytes from the start of the first array of `rank` to the end of its last.
  std::size_t extent_of(int rank) const { return (nodes_of(rank) - 1) * node_bytes() + call.count * element_bytes(); }

  /// Appends the addresses of the arrays of `rank`, which lie `distance` bytes apart from `first` on.
  void add_arrays(int rank, const std::byte* first, std::size_t distance, std::vector<const std::byte*>& arrays) const {
    for (std::size_t node = 0; node < nodes_of(rank); ++node) arrays.push_back(first + node * distance);
  }

  /// The reduction of the arrays of all ranks, in rank order.
  Reduction reduction() const {
    if (tree == nullptr) return {.dtype = call.dtype, .op = call.op};
    return {
        .dtype = call.dtype, .op = call.op, .parts = static_cast<std::size_t>(tree->lanes()), .merges = tree->merges()};
  }
};

}  // namespace lockstep::mpi
