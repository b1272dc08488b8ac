// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

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

/// The buffers of a model (running statistics, say) in a step of several lanes. Each lane starts from the values at the
/// start of the step. Afterwards, floating-point buffers are averaged by the tree like the gradients, and the others
/// keep the values of any lane.
class LaneBuffers {
 public:
  /// Allocates. Collective.
  /// @param buffers  returns the model's buffers; called here and at the start of every step
  LaneBuffers(std::function<std::vector<at::Tensor>()> buffers, int nodes, mpi::Collectives& collectives);

  /// Begins a step.
  void keep();
  /// Gives the buffers the values from the start of the step.
  void restore() const;
  /// Stores the values of the lane that ends in its node, and adds neighbors in the tree that this rank holds.
  void collect(mpi::LaneTree::Step step) const;
  /// Starts the sum over all ranks. Collective.
  mpi::Ticket start(mpi::Collectives& collectives, const mpi::LaneTree& tree) const;
  /// Assigns the averages to the buffers, after the sum was awaited.
  void assign() const;

 private:
  std::function<std::vector<at::Tensor>()> buffers_;
  NodeRow sums_;
  std::vector<at::Tensor> live_;
  std::vector<at::Tensor> kept_;  // the values of live_ at the start of the step
};

}  // namespace lockstep::parallel
