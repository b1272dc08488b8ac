// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/flat_parameters.hpp>

#include <cstdint>
#include <vector>

#include "parallel/reducers/bucket_plan.hpp"

namespace lockstep::parallel {

/// Parameters of one dtype that lie one after the other and are divided among ranks as one: rank r has the elements
/// [r * slice, (r + 1) * slice).
struct Unit {
  DType dtype = DType::float32;
  std::vector<Slot> slots;
  std::int64_t slice = 0;  ///< elements of each rank; a multiple of optim::kPieceElements

  std::int64_t count(int ranks) const { return slice * ranks; }  ///< elements of all ranks, padding included
};

/// Lays parameters out as units. Pure: the same on every rank.
///
/// Slots begin on 64 bytes. Where a border between ranks cuts a parameter, it does so at a multiple of a piece from the
/// parameter's beginning, so that sums by pieces do not depend on who has which part.
/// @param members  by unit, numbers of parameters of one dtype with dense gradients; none of them empty
std::vector<Unit> plan_units(const std::vector<ParameterSpec>& parameters,
                             const std::vector<std::vector<std::size_t>>& members, int ranks);

/// One rank's slice of a unit as an optimizer sees it. Segments lie where the whole unit has them, counted from the
/// slice's beginning: the rank's own part of each is inside of the slice.
optim::Block block_of(const Unit& unit, const std::vector<ParameterSpec>& parameters, int rank);

}  // namespace lockstep::parallel
