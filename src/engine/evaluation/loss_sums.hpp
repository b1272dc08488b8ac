// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/model.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::engine {

/// The losses of the batches of an evaluation, and what they count. Their means are sums over all batches divided by
/// the counts of all batches, added in a fixed order: the same bits whichever rank has which batch.
class LossSums {
 public:
  /// @param batches  of all ranks
  explicit LossSums(std::int64_t batches) : batches_(static_cast<std::size_t>(batches)) {}

  /// @param batch   its number
  /// @param counts  as models::Model::counts
  /// @param usual   items of a loss that is not counted
  /// @throws ConfigError  other losses than in the first batch
  void add(std::int64_t batch, const models::ParsedLosses& losses,
           const std::vector<std::pair<std::string, double>>& counts, double usual);

  /// The means over all ranks' batches. Collective.
  std::vector<std::pair<std::string, double>> means(const mpi::Communicator& world, mpi::Collectives& collectives);

 private:
  std::size_t batches_;
  std::vector<std::string> names_;  // names of the losses, "loss" first; empty = this rank had no batch
  std::vector<double> sums_;        // [names, batches]; 0 where another rank has counted
  std::vector<double> items_;       // [names, batches]; the same
  bool are_counted_ = false;        // whether the model counts the items
};

}  // namespace lockstep::engine
