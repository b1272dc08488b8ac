// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <span>
#include <string>
#include <vector>

namespace lockstep::engine {

/// Weights the losses of a step by the numbers of items that the model counts in its batches (models::Model::counts),
/// so that the step trains the mean over all items of the global batch, however they are divided. The default losses of
/// the kind of the task count the targets that are not ignored; a step without ignored targets has the usual weights.
class LossCounts {
 public:
  /// Finds out whether the model counts. Collective.
  /// @param first  this rank's first micro_batch
  /// @throws ConfigError  the ranks' models count items of different losses; on every rank
  LossCounts(const models::Model& model, const batch::Batch& first, const mpi::Communicator& world);

  /// No loss is counted.
  bool is_empty() const noexcept { return names_.empty(); }

  /// The weights of this rank's micro_batches of one step. Collective.
  /// @param usual  by micro_batch: the weight of losses that are not counted
  /// @param parts  into how many averages of equal weight the reducer divides the step: ranks, or lanes
  /// @throws ConfigError  on every rank: counting failed on one, or a count is negative or not finite
  std::vector<models::LossWeights> weigh(const models::Model& model, std::span<const batch::Batch> batches,
                                         std::span<const double> usual, double parts, const mpi::Communicator& world,
                                         mpi::Collectives& collectives) const;

 private:
  std::vector<double> counts_of(const models::Model& model, const batch::Batch& batch) const;
  models::LossWeights weights_of(const std::vector<double>& counts, double usual, double parts,
                                 const std::vector<double>& totals) const;

  std::vector<std::string> names_;
  bool is_of_task_ = false;
};

}  // namespace lockstep::engine
