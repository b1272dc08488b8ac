// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "mpi/shared/lane_tree.hpp"
#include "parallel/reducers/node_row.hpp"

namespace lockstep::parallel {

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
