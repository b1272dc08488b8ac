// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/reducers/autograd_graph.hpp"
#include "parallel/store/named_parameter.hpp"
#include "parallel/store/ownership.hpp"
#include "parallel/store/reducer.hpp"
#include "parallel/store/shards.hpp"
#include "parallel/store/transfers.hpp"

namespace lockstep::parallel {

/// Averages gradients so that each rank keeps only its slice of every unit.
///
/// A unit is reduced as soon as backward has computed the gradients of all of its parameters and the units before it
/// are reduced. The memory of the gradients is then freed. Every micro-batch is reduced, and the slices are added. A
/// parameter without a gradient on some rank counts as zero there; a parameter without a gradient on all ranks has
/// none.
///
/// The ranks of each copy average their gradients. If there are several copies, each slice is then averaged over them,
/// once for every step, while backward goes on.
///
/// With `rounding`, gradients travel in 16 bits, with the values of fp16_hook and bf16_hook: they are divided by the
/// number of ranks, rounded, summed and rounded again, once for every micro-batch. The sums over copies are also
/// rounded.
///
/// Nothing on GPUs waits for a reduction before the gradients are needed, or their memory is needed again. Gradients
/// that the host visits are copied to page-locked memory while backward goes on, from the second step on.
class ShardReducer : public Reducer, public SlicedReducer, public TensorSlices {
 public:
  /// Allocates memory for the largest unit. Collective.
  /// @param parameters  in registration order, with dense gradients of their own type
  /// @param units       of all parameters, in the order in which forward uses them; reduced in the opposite order
  /// @param ranks       outlives the reducer
  /// @param on_reduced  called when backward no longer needs the parameters of a unit
  /// @param rounding    at::kHalf or at::kBFloat16: gradients are compressed; nullopt = they are not. One rank alone
  ///                    communicates nothing and ignores it
  ShardReducer(std::vector<NamedParameter> parameters, std::vector<Unit> units, const ShardRanks& ranks,
               std::function<void(std::size_t unit)> on_reduced, std::optional<at::ScalarType> rounding = {});

  /// Reduces what the previous backward left. The slices are the same in every mode.
  void prepare(Synchronization mode) override;
  void finish() override;
  bool supports_slices() const noexcept override { return false; }
  bool is_sliced() const noexcept override { return is_sliced_; }
  bool has_gradient(std::size_t parameter) const override { return is_used_[parameter] != 0; }
  void visit(std::size_t parameter, std::int64_t begin, std::int64_t end, const Visit& visit, bool keeps) override;
  at::Tensor part_of(std::size_t parameter, std::int64_t begin, std::int64_t end) const override;
  void release() noexcept override;
  /// Not collective.
  void reset(GivenUp what) override;

 private:
  struct UnitPosition {
    std::size_t unit = 0;
    std::int64_t offset = 0;
  };

  /// Memory in which a unit's gradients are packed, and their reduction, which may be under way.
  struct Staging {
    mpi::BucketMemory memory;
    bool is_busy = false;
    mpi::Ticket ticket = {};
    std::size_t unit = 0;
    at::Tensor result = {};  // the slice, or what is to be copied or added to it
    bool is_added = false;   // the slice holds an earlier contribution
    bool is_last = false;    // no further micro-batch of the step follows
  };

  /// The average of a slice over the copies, which is under way.
  struct Crossing {
    std::size_t unit = 0;
    at::Tensor values;  // the slice, or what it was rounded to
    mpi::Ticket ticket;
  };

  void on_accumulated(std::size_t parameter);
  mpi::BucketMemory allocate(std::size_t bytes) const;
  void begin_round();
  void flush();
  void reduce(std::size_t unit);
  void start(Staging& staging);
  void pack(std::size_t unit, const mpi::BucketMemory& memory);
  at::ScalarType type_in_transit(std::size_t unit) const;
  mpi::ReduceOp op() const noexcept { return rounding_ ? mpi::ReduceOp::sum : mpi::ReduceOp::average; }
  void settle(Staging& staging);
  void settle_all();
  void cross(std::size_t unit);
  void end_crossings();
  /// Must be called before later work of the device changes a unit's slice.
  void begin_change(std::size_t unit);
  /// Starts to copy a unit's slice to the host, unless that was started since the slice was changed. Does nothing
  /// before the first visit.
  void send_to_host(std::size_t unit);
  /// A unit's slice in the host's memory.
  const at::Tensor& on_host(std::size_t unit);
  bool is_reduced(std::size_t unit) const { return unit >= next_; }
  /// Position of an element in the slice of the parameter's unit.
  std::int64_t in_slice(std::size_t parameter, std::int64_t element) const;

  std::vector<NamedParameter> parameters_;
  std::vector<Unit> units_;
  const ShardRanks& ranks_;
  mpi::Collectives& collectives_;  // those of this copy's ranks
  std::function<void(std::size_t)> on_reduced_;
  std::optional<at::ScalarType> rounding_;
  std::vector<UnitPosition> positions_;  // position of each parameter
  std::vector<at::Tensor> slices_;       // sum of the averages of this step, one for each unit
  std::vector<Staging> stagings_;        // take turns
  std::size_t turn_ = 0;
  std::vector<char> has_arrived_;            // flags of the parameters whose gradient has arrived in this round
  std::vector<std::uint8_t> is_used_;        // parameters used in this step: by this rank; after finish, by any
  std::vector<std::size_t> awaited_;         // number of parameters of each unit that have not arrived yet
  std::vector<std::int64_t> contributions_;  // number of contributions to each unit in this step
  std::vector<Crossing> crossings_;          // the order is that in which they were started
  std::vector<char> has_crossed_;            // units whose average over the copies was started in this step
  std::unique_ptr<HostCopies> host_slices_;  // copies of slices_; null = nothing was visited on a GPU
  bool is_last_micro_batch_ = true;          // the mode of prepare synchronizes
  std::size_t next_ = 0;                     // units from here on are reduced
  bool is_open_ = false;                     // true between prepare and finish
  bool is_sliced_ = false;
  std::unique_ptr<AccumulatorHooks> hooks_;
};

}  // namespace lockstep::parallel
