// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>

#include "mpi/process/topology.hpp"

namespace lockstep::parallel {

/// The ranks that divide a copy of the training state among them, and the ranks that hold the same slice of each copy.
class ShardRanks {
 public:
  /// All ranks divide one copy.
  /// @param all  outlives this
  explicit ShardRanks(mpi::Collectives& all) : all_(&all) {}
  /// The ranks of each host divide a copy. Collective.
  /// @param topology  of the same ranks, with as many ranks on every host
  ShardRanks(mpi::Collectives& all, const mpi::Topology& topology);

  mpi::Collectives& all() const noexcept { return *all_; }
  mpi::Collectives& inside() const noexcept { return inside_ ? *inside_ : *all_; }  ///< the ranks of this rank's copy
  mpi::Collectives* across() const noexcept { return across_.get(); }  ///< one rank of each copy; null = one copy
  int copies() const noexcept { return across_ ? across_->world_size() : 1; }

  // Sums over all ranks. Copies are equal, so the first one counts. Sums of each copy on its own could be rounded in
  // different orders, and copies would drift apart. Collective over all ranks.
  void sum(std::span<double> values) const;
  void sum(const at::Tensor& values) const;

 private:
  bool is_in_first_copy() const noexcept { return !across_ || across_->rank() == 0; }

  mpi::Collectives* all_;
  std::unique_ptr<mpi::Collectives> inside_;  // null = all ranks
  std::unique_ptr<mpi::Collectives> across_;
};

}  // namespace lockstep::parallel
