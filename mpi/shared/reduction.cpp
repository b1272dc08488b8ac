// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/shared/reduction.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <stdexcept>
#include <string>

#include "kernels/reduction.hpp"
#include "mpi/shared/call.hpp"

namespace lockstep::mpi {

namespace {

bool is_half(DType dtype) { return dtype == DType::float16 || dtype == DType::bfloat16; }

kernels::Combination combination_of(ReduceOp op) {
  using kernels::Combination;
  constexpr std::array kCombinations = {Combination::sum, Combination::sum, Combination::product, Combination::min,
                                        Combination::max};
  return kCombinations.at(static_cast<std::size_t>(op));
}

}  // namespace

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
