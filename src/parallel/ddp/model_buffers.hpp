// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/model.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace lockstep::parallel {

/// Keeps the buffers of a model (running statistics, say) equal on all ranks, except those that are ignored.
class ModelBuffers {
 public:
  /// @param model        outlives this object, as do the collectives
  /// @param ignored      full names of the buffers that each rank keeps to itself
  ModelBuffers(const models::Model& model, mpi::Collectives& collectives, std::vector<std::string> ignored)
      : model_(&model), collectives_(&collectives), ignored_(std::move(ignored)) {}

  /// The current buffers: a module may have replaced them.
  std::vector<at::Tensor> all() const;
  /// Gives all ranks the buffers of `root`, with one broadcast for each type. Collective.
  void broadcast_from(int root) const;
  /// Gives all ranks the average of the floating-point buffers, and rank 0's other buffers. Buffers of at most 32 bits
  /// that are equal on all ranks keep their bits, because they are summed in float64. One reduction or broadcast for
  /// each type. Collective.
  void average() const;

 private:
  void broadcast_alike(const std::vector<at::Tensor>& buffers, int root) const;

  const models::Model* model_;
  mpi::Collectives* collectives_;
  std::vector<std::string> ignored_;
};

}  // namespace lockstep::parallel
