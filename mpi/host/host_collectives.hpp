// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "mpi/process/chunks.hpp"
#include "mpi/shared/ordered_collectives.hpp"
#include "mpi/shared/rendezvous.hpp"

namespace lockstep::mpi {

/// The part that the backends for host memory share: the work of a job by its kind, and results in pieces.
class HostCollectives : public OrderedCollectives {
 public:
  using OrderedCollectives::OrderedCollectives;

 protected:
  static constexpr std::size_t kMaxElementBytes = 8;

  /// Waits until all ranks have come to a call, and compares the calls.
  virtual void await_all(const Job&) {}
  // This rank's work, once all have come.
  virtual void perform_all_reduce(const Job& job) = 0;
  virtual void perform_reduce_scatter(const Job& job) = 0;
  virtual void perform_broadcast(const Job& job) = 0;
  virtual void perform_all_gather(const Job& job) = 0;
  /// Lets the peers see that this rank has done its work.
  virtual void finish(const Job&) {}

  void perform(const Job& job) final;
  void take(const Job& job, Slice range, const RangeConsumer& consume) override {
    hand_over(job.values, job, range, consume);
  }

  /// Gives `consume` a range of the job's result.
  /// @param result  the first element of the whole
  static void hand_over(const std::byte* result, const Job& job, Slice range, const RangeConsumer& consume);
  /// Gives it the results for a range, formed piece by piece.
  /// @param arrays_from  gives the places of element `begin` in the arrays of all ranks
  template <class ArraysFrom>
  void reduce_pieces(const Job& job, Slice range, const RangeConsumer& consume, ArraysFrom arrays_from) {
    for_each_chunk(range.count, kPieceElements, [&](std::size_t offset, std::size_t count) {
      const std::size_t begin = range.begin + offset;
      const std::span<const std::byte* const> arrays = arrays_from(begin);
      std::byte* const piece = piece_.data();
      reduce(arrays, std::span(&piece, 1), count, job.reduction());
      consume(begin, piece, count);
    });
  }

  alignas(
      64) std::array<std::byte, kPieceElements * kMaxElementBytes> piece_;  ///< a piece of a result that is formed here
};

/// A bucket that this rank alone maps.
BucketMemory allocate_private_bucket(std::size_t bytes);

std::unique_ptr<Collectives> make_self_collectives();

/// Collective; the ranks of `comm` share a host.
std::unique_ptr<Collectives> make_shm_collectives(Communicator comm, const WaitOptions& options);

/// Collective.
std::unique_ptr<Collectives> make_mpi_collectives(Communicator comm, const WaitOptions& options);

/// Collective; ranks with the same host share one.
/// @param host_of_rank  by rank; any numbers
std::unique_ptr<Collectives> make_hierarchical_collectives(Communicator comm, const std::vector<int>& host_of_rank,
                                                           const WaitOptions& options);

}  // namespace lockstep::mpi
