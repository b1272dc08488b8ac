// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/dtype.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "mpi/shared/lane_tree.hpp"

namespace lockstep::parallel {

/// A row of equal buffers of one dtype in bucket memory: one for each node of the tree that a rank may hold.
class NodeRow {
 public:
  /// Allocates. Collective.
  /// @param count  elements of one buffer
  NodeRow(DType dtype, std::int64_t count, int nodes, mpi::Collectives& collectives);

  std::byte* at(int node, std::int64_t element) const {
    return memory_.bytes.data() +
           (static_cast<std::size_t>(node) * stride_ + static_cast<std::size_t>(element)) * size_of(dtype_);
  }
  const std::shared_ptr<void>& owner() const { return memory_.owner; }
  DType dtype() const { return dtype_; }

  /// Adds neighbors in the tree that this rank holds.
  void fold(mpi::LaneTree::Step step) const;
  /// Starts the sum over all ranks. Collective.
  /// @param by_ranges  the result is read by Collectives::reduce_range
  mpi::Ticket start(mpi::Collectives& collectives, const mpi::LaneTree& tree, bool by_ranges) const;

 private:
  DType dtype_;
  std::size_t count_;
  std::size_t stride_;  // elements from one buffer to the next
  mpi::BucketMemory memory_;
};

}  // namespace lockstep::parallel
