// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "mpi/shared/lane_tree.hpp"

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

/// "all_reduce".
const char* name_of(CallKind kind);

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

/// Whether values of `dtype` can be reduced by `op`, as start_all_reduce says.
/// @throws std::logic_error  they cannot
void require_reducible(DType dtype, ReduceOp op);

/// Whether they can be summed by lanes, as start_lane_reduce says.
/// @throws std::logic_error  they cannot
void require_lane_reducible(DType dtype, ReduceOp op);

/// The operation on each element.
struct Reduction {
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  std::size_t parts = 0;  ///< number by which `average` divides; 0 = the number of sources
  /// The order of a sum or average. Empty = that of the sources, ((s0 + s1) + s2) + ... Else source i is laid on a
  /// stack, then merges[i] times the two topmost values are replaced by (lower + upper); at the end one is left.
  std::span<const std::uint8_t> merges = {};
  /// A reduction in several parts: so many of the first sources are results of earlier parts, and the result of a part
  /// goes into a later one. Such results are of partial_dtype(dtype); the last part alone forms the average.
  std::size_t partial_sources = 0;
  bool is_partial = false;
};

/// The type in which values of `dtype` are combined: float32 for 16-bit floats.
DType partial_dtype(DType dtype);

/// Combines `count` elements of all sources in the element type, multiplies by 1/parts for an average, and writes the
/// result to every target. float16 and bfloat16 are combined as float32 and rounded once, ties to even. Each element
/// has the same bits whatever the count, the place and the level of the processor. Targets may be sources; nothing
/// needs to be aligned.
void reduce(std::span<const std::byte* const> sources, std::span<std::byte* const> targets, std::size_t count,
            const Reduction& reduction);

/// A call of this rank, with its memory.
struct Job {
  Call call;
  std::byte* values = nullptr;     ///< values: what is reduced, broadcast or contributed
  std::byte* result = nullptr;     ///< memory that all_gather and reduce_scatter write to
  const LaneTree* tree = nullptr;  ///< tree of a sum by lanes

  std::size_t element_bytes() const { return size_of(call.dtype); }
  /// How many arrays `rank` contributes to a reduction. They lie node_bytes() apart.
  std::size_t nodes_of(int rank) const { return tree == nullptr ? 1 : tree->nodes_of(rank).size(); }
  /// How many the rank with the most contributes.
  std::size_t max_nodes() const {
    std::size_t max = 1;
    for (int rank = 0; tree != nullptr && rank < tree->world_size(); ++rank) max = std::max(max, nodes_of(rank));
    return max;
  }
  std::size_t node_bytes() const { return call.stride * element_bytes(); }
  /// The bytes from the start of the first array of `rank` to the end of its last.
  std::size_t extent_of(int rank) const { return (nodes_of(rank) - 1) * node_bytes() + call.count * element_bytes(); }

  /// Appends the addresses of the arrays of `rank`, which lie `distance` bytes apart from `first` on.
  void add_arrays(int rank, const std::byte* first, std::size_t distance, std::vector<const std::byte*>& arrays) const {
    for (std::size_t node = 0; node < nodes_of(rank); ++node) arrays.push_back(first + node * distance);
  }

  /// The reduction of the arrays of all ranks, in rank order.
  Reduction reduction() const {
    if (tree == nullptr) return {.dtype = call.dtype, .op = call.op};
    return {
        .dtype = call.dtype, .op = call.op, .parts = static_cast<std::size_t>(tree->lanes()), .merges = tree->merges()};
  }
};

}  // namespace lockstep::mpi
