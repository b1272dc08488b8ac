// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace lockstep::mpi {

enum class CallKind : std::uint8_t {
  all_reduce,
  reduce_ranges,
  broadcast,
  all_gather,
  reduce_scatter,
  barrier,
  allocate_bucket,
  split,
  replay  ///< all operations of a captured step; has no number
};

/// The call that a rank asks its peers to do together with it. All ranks must request the same; lies in shared memory
/// and travels as bytes.
struct Call {
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;  ///< elements of a reduction, else bytes
  std::int32_t root = 0;
  std::int32_t lanes = 0;    ///< number of lanes of a sum by lanes
  std::uint32_t layout = 0;  ///< the fingerprint of its tree
  std::uint64_t stride = 0;  ///< elements from one of its nodes to the next
  CallKind kind = CallKind::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::uint8;
  bool is_on_device = false;  ///< the memory is a GPU's
};

/// Whether the call combines the values of all ranks.
bool is_reduction(CallKind kind);

/// "average".
const char* name_of(ReduceOp op);

/// "all_reduce #17 of 1000 float32 (average)".
std::string describe(const Call& call);

/// The sentence of a rank that has waited too long.
/// @param late  the ranks that it waits for
std::string lateness(int rank, double seconds, const Call& call, const std::string& late);

/// Compares what some ranks request; the first call that is not like the first rank's decides.
/// @param ranks    what they are called
/// @param call_of  gives the call of the i-th of them
/// @return  both sides in one sentence, the same on every rank; empty when all agree
std::string disagreement(std::span<const int> ranks, const std::function<const Call&(int)>& call_of);

}  // namespace lockstep::mpi
