// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "mpi/process/topology.hpp"
#include "parallel/store/named_parameter.hpp"
#include "parallel/store/ownership.hpp"
#include "parallel/store/transfers.hpp"

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

/// The values of parameters that are divided among ranks: each has a slice of every unit, and makes units whole.
///
/// The model's parameters are views of whole units. With `frees`, a unit's memory exists only from gather to release;
/// whatever autograd has saved of a parameter finds the values again once the unit is gathered.
class Shards {
 public:
  struct ShardsOptions {
    bool frees = false;
    bool prefetches = true;  ///< `request` only begins; on the CPU a thread of its own gathers
    bool offloads = false;   ///< `held` are copies in the host's memory, page-locked for GPUs
  };
  /// Moves the parameters in: all ranks must have the same values. Collective.
  /// @param parameters   those of all units; their values are replaced by views
  /// @param collectives  outlives the shards
  Shards(std::vector<NamedParameter> parameters, std::vector<Unit> units, mpi::Collectives& collectives,
         const ShardsOptions& options);
  ~Shards();

  const std::vector<Unit>& units() const noexcept { return units_; }
  bool frees() const noexcept { return options_.frees; }
  /// [slice] This rank's own part of a unit, as updates see it: where parameters lie, or in the host's memory. Lives as
  /// long as the shards.
  const at::Tensor& held(std::size_t unit) const { return (options_.offloads ? offloaded_ : slices_).at(unit); }

  /// A request with `frees`. Begins to make a unit whole, if it is not. Collective: all ranks in the same order.
  void request(std::size_t unit);
  /// The same, and returns when its parameters can be used.
  void gather(std::size_t unit);
  /// Gives the memory of a unit back, if it has any. Collective only where it was requested and not gathered.
  void release(std::size_t unit);
  void release_all();

  /// Returns, with `offloads`, when what is held may be written, because the device has read it. Not collective.
  void await_brought_back() const;
  /// Starts, with `offloads`, to copy what is held to where parameters lie, after it was written. The host goes on, and
  /// `gather` and `publish` follow the copy of each unit. Not collective.
  void bring_back();
  /// Lets later work of the current stream find, with `offloads`, what was brought back. Not collective.
  void follow_brought_back() const;
  /// Publishes without `frees`: makes all units whole again after slices were written. Collective.
  void publish();
  /// Takes this rank's slices from whole units, after parameters were written. Not collective.
  void take_slices();

  /// [count] What all ranks hold of a unit, laid out like it.
  /// @param mine  [slice of this rank] of any type
  /// Collective.
  at::Tensor whole(std::size_t unit, const at::Tensor& mine);

 private:
  class Worker;
  enum class UnitState { released, requested, gathered };

  at::DataPtr take_memory(std::size_t unit);
  void offload();
  void follow_brought_back(std::size_t unit) const;

  std::vector<NamedParameter> parameters_;
  std::vector<Unit> units_;
  ShardsOptions options_;
  mpi::Collectives* collectives_;
  std::unique_ptr<mpi::Collectives> own_collectives_;  // used by the worker only
  std::unique_ptr<Worker> worker_;
  std::vector<at::Tensor> wholes_;  // all values of each unit
  std::vector<at::Tensor> slices_;
  std::vector<at::Tensor> offloaded_;   // copies of the slices
  std::unique_ptr<Transfers> returns_;  // one for each unit; null = nothing is offloaded
  std::vector<UnitState> states_;
  std::vector<std::future<void>> arrivals_;          // requested units that the worker gathers
  std::vector<std::optional<mpi::Ticket>> tickets_;  // requested units, if there is no worker; none = not under way
  std::vector<at::Tensor> coming_;                   // their values
  std::multimap<std::size_t, at::DataPtr> free_;     // memory that was given back, by bytes
};

}  // namespace lockstep::parallel
