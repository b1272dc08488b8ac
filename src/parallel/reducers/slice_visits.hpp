// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/store/reducer.hpp"

namespace lockstep::parallel {

/// A gradient in a bucket that is reduced in ranges.
struct GradientSlot {
  mpi::Ticket ticket;
  std::byte* begin = nullptr;     ///< its first element, where this rank has it
  std::int64_t offset = 0;        ///< elements from the start of the bucket
  std::size_t element_bytes = 0;  ///< bytes of an element
};

/// Visits gradients in buckets that are reduced in ranges. Those that are visited a second time were averaged in place
/// by the first visit. Not collective.
class SliceVisits {
 public:
  SliceVisits(mpi::Collectives& collectives, std::size_t parameters)
      : collectives_(collectives), is_kept_(parameters) {}

  void begin_step();
  /// See SlicedReducer::visit.
  void visit(const GradientSlot& gradient, std::size_t parameter, std::int64_t begin, std::int64_t end,
             const SlicedReducer::Visit& visit, bool keeps);
  /// Returns when all ranks have started the reduction of a bucket, and all that were started before it.
  void meet(mpi::Ticket ticket) const;

 private:
  mpi::Collectives& collectives_;
  std::vector<char> is_kept_;  // flags of the parameters whose own part is averaged in place
};

}  // namespace lockstep::parallel
