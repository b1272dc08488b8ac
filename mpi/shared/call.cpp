// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/shared/call.hpp"

#include <array>

#include "core/text/duration.hpp"

namespace lockstep::mpi {

namespace {

/// Listed in the order of CallKind.
constexpr std::array kCallNames = {"all_reduce",      "reduce_ranges",  "broadcast",
                                   "all_gather",      "reduce_scatter", "barrier",
                                   "allocate_bucket", "split",          "the replay of a captured step"};

const char* name_of(CallKind kind) { return kCallNames.at(static_cast<std::size_t>(kind)); }

std::string lanes_of(const Call& call) {
  if (call.lanes == 0) return "";
  return " over " + std::to_string(call.lanes) + " lanes (layout " + std::to_string(call.layout) + ", stride " +
         std::to_string(call.stride) + ")";
}

std::string arguments_of(const Call& call) {
  const std::string count = " of " + std::to_string(call.count) + " ";
  switch (call.kind) {
    case CallKind::all_reduce:
    case CallKind::reduce_ranges:
    case CallKind::reduce_scatter:
      return count + std::string(lockstep::name_of(call.dtype)) + " (" + name_of(call.op) + ")" + lanes_of(call);
    case CallKind::broadcast:
      return count + "bytes from rank " + std::to_string(call.root);
    case CallKind::all_gather:
    case CallKind::allocate_bucket:
      return count + "bytes";
    case CallKind::barrier:
    case CallKind::split:
    case CallKind::replay:
      break;
  }
  return "";
}

bool is_same(const Call& a, const Call& b) {
  return a.sequence == b.sequence && a.kind == b.kind && a.count == b.count && a.root == b.root && a.op == b.op &&
         a.dtype == b.dtype && a.lanes == b.lanes && a.layout == b.layout && a.stride == b.stride &&
         a.is_on_device == b.is_on_device;
}

}  // namespace

bool is_reduction(CallKind kind) {
  return kind == CallKind::all_reduce || kind == CallKind::reduce_ranges || kind == CallKind::reduce_scatter;
}

const char* name_of(ReduceOp op) {
  constexpr std::array kNames = {"sum", "average", "product", "min", "max"};
  return kNames.at(static_cast<std::size_t>(op));
}

std::string describe(const Call& call) {
  if (call.kind == CallKind::replay) return name_of(call.kind);
  return std::string(name_of(call.kind)) + " #" + std::to_string(call.sequence) + arguments_of(call) +
         (call.is_on_device ? " on the GPU" : "");
}

std::string lateness(int rank, double seconds, const Call& call, const std::string& late) {
  return "rank " + std::to_string(rank) + " waited " + seconds_text(seconds) + " in " + describe(call) + " for " +
         late + "; raise comm.timeout_s if ranks can be this far apart";
}

std::string disagreement(std::span<const int> ranks, const std::function<const Call&(int)>& call_of) {
  const Call& first = call_of(0);
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    const Call& other = call_of(static_cast<int>(i));
    if (is_same(first, other)) continue;
    return "the ranks call different operations: rank " + std::to_string(ranks[0]) + " called " + describe(first) +
           ", rank " + std::to_string(ranks[i]) + " called " + describe(other);
  }
  return "";
}

}  // namespace lockstep::mpi
