// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/sharding/shard_plan.hpp"

#include <algorithm>

namespace lockstep::parallel {

namespace {

constexpr std::int64_t kLine = 64;  // bytes

std::int64_t rounded_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

/// The slots for slices of this size; the last may end beyond the last slice.
std::vector<Slot> place(const std::vector<ParameterSpec>& parameters, const std::vector<std::size_t>& members,
                        std::int64_t slice) {
  std::vector<Slot> slots;
  std::int64_t at = 0;
  for (const std::size_t parameter : members) {
    const ParameterSpec& spec = parameters[parameter];
    at = rounded_up(at, kLine / static_cast<std::int64_t>(size_of(spec.dtype)));
    const std::int64_t border = (at / slice + 1) * slice;
    if (at + spec.count() > border) at = rounded_up(at, optim::kPieceElements);
    slots.push_back({parameter, at});
    at += spec.count();
  }
  return slots;
}

}  // namespace

std::vector<Unit> plan_units(const std::vector<ParameterSpec>& parameters,
                             const std::vector<std::vector<std::size_t>>& members, int ranks) {
  std::vector<Unit> units;
  for (const std::vector<std::size_t>& of_unit : members) {
    Unit unit{.dtype = parameters[of_unit.front()].dtype, .slots = {}};
    std::int64_t total = 1;
    for (const std::size_t parameter : of_unit) total += parameters[parameter].count();
    unit.slice = rounded_up((total + ranks - 1) / ranks, optim::kPieceElements);
    // Alignment may need a little more than the parameters alone: each border costs at most one piece.
    for (;; unit.slice += optim::kPieceElements) {
      unit.slots = place(parameters, of_unit, unit.slice);
      if (unit.slots.back().offset + parameters[of_unit.back()].count() <= unit.count(ranks)) break;
    }
    units.push_back(std::move(unit));
  }
  return units;
}

optim::Block block_of(const Unit& unit, const std::vector<ParameterSpec>& parameters, int rank) {
  optim::Block block{.dtype = unit.dtype, .parameters = nullptr, .count = unit.slice, .segments = {}};
  const std::int64_t first = unit.slice * rank;
  for (const Slot& slot : unit.slots) {
    const ParameterSpec& spec = parameters[slot.parameter];
    const auto inside = [&](std::int64_t position) {
      return std::clamp<std::int64_t>(position - slot.offset, 0, spec.count());
    };
    block.segments.push_back({.name = spec.name,
                              .shape = spec.shape,
                              .strides = spec.strides,
                              .offset = slot.offset - first,
                              .count = spec.count(),
                              .own_begin = inside(first),
                              .own_end = inside(first + unit.slice)});
  }
  return block;
}

}  // namespace lockstep::parallel
