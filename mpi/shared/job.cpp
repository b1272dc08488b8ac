// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/shared/job.hpp"

#include <array>
#include <initializer_list>
#include <stdexcept>

#include "core/text/duration.hpp"
#include "kernels/reduction.hpp"

namespace lockstep::mpi {

namespace {

/// Listed in the order of CallKind.
constexpr std::array kCallNames = {"all_reduce",      "reduce_ranges",  "broadcast",
                                   "all_gather",      "reduce_scatter", "barrier",
                                   "allocate_bucket", "split",          "the replay of a captured step"};

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

bool is_half(DType dtype) { return dtype == DType::float16 || dtype == DType::bfloat16; }

kernels::Combination combination_of(ReduceOp op) {
  using kernels::Combination;
  constexpr std::array kCombinations = {Combination::sum, Combination::sum, Combination::product, Combination::min,
                                        Combination::max};
  return kCombinations.at(static_cast<std::size_t>(op));
}

}  // namespace

const char* name_of(CallKind kind) { return kCallNames.at(static_cast<std::size_t>(kind)); }

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

void require_reducible(DType dtype, ReduceOp op) {
  const auto is_one_of = [dtype](std::initializer_list<DType> types) {
    return std::find(types.begin(), types.end(), dtype) != types.end();
  };
  if (is_one_of({DType::float32, DType::float64, DType::float16, DType::bfloat16})) return;
  if (is_one_of({DType::int32, DType::int64, DType::uint8}) && op != ReduceOp::average) return;
  if (dtype == DType::boolean && (op == ReduceOp::min || op == ReduceOp::max)) return;
  throw std::logic_error("comm: " + std::string(name_of(dtype)) + " values cannot be reduced by " + name_of(op));
}

void require_lane_reducible(DType dtype, ReduceOp op) {
  require_reducible(dtype, op);
  if (is_half(dtype) || (op != ReduceOp::sum && op != ReduceOp::average)) {
    throw std::logic_error("comm: " + std::string(name_of(dtype)) + " values cannot be reduced by " + name_of(op) +
                           " over lanes; sum float32 or float64");
  }
}

DType partial_dtype(DType dtype) { return is_half(dtype) ? DType::float32 : dtype; }

void reduce(std::span<const std::byte* const> sources, std::span<std::byte* const> targets, std::size_t count,
            const Reduction& reduction) {
  require_reducible(reduction.dtype, reduction.op);
  const bool is_divided = reduction.op == ReduceOp::average && !reduction.is_partial;
  const std::size_t parts = reduction.parts == 0 ? sources.size() : reduction.parts;
  kernels::reduce(sources, targets, count,
                  {.dtype = reduction.dtype,
                   .by = combination_of(reduction.op),
                   .divisor = is_divided ? parts : 1,
                   .merges = reduction.merges,
                   .partial_sources = reduction.partial_sources,
                   .is_partial = reduction.is_partial});
}

}  // namespace lockstep::mpi
