// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/flat_parameters.hpp>

#include <cstdint>
#include <vector>

#include "parallel/store/bucket_plan.hpp"

namespace lockstep::parallel {

/// Parameters of one dtype that lie one after the other and are divided among ranks as one: rank r has the elements
/// [begin(r), begin(r) + slice(r)).
struct Unit {
  DType dtype = DType::float32;
  std::vector<Slot> slots;            ///< sorted by offset
  std::vector<std::int64_t> borders;  ///< [ranks + 1] elements, on 64 bytes, from 0

  std::int64_t begin(int rank) const { return borders[static_cast<std::size_t>(rank)]; }
  std::int64_t slice(int rank) const { return begin(rank + 1) - begin(rank); }
  std::int64_t count() const { return borders.back(); }  ///< elements of all ranks, padding included
  int owner_of(const Slot& slot) const;                  ///< the rank that has the first element of a parameter
};

/// Lays parameters out as units that all ranks share evenly, in whole pieces. Pure: the same on every rank.
///
/// Slots begin on 64 bytes. Where a border between ranks cuts a parameter, it does so at a multiple of a piece from the
/// parameter's beginning, so that sums by pieces do not depend on who has which part.
/// @param members  by unit, numbers of parameters of one dtype with dense gradients; none of them empty
std::vector<Unit> plan_units(const std::vector<ParameterSpec>& parameters,
                             const std::vector<std::vector<std::size_t>>& members, int ranks);

/// Lays parameters out so that each has one owner. Pure: the same on every rank.
///
/// Parameters are assigned from the largest to the smallest, each to the rank that has the fewest bytes so far in all
/// units. A unit has the parameters of rank 0 first, then those of rank 1, and so on; ranks can have slices of
/// different sizes, or none.
/// @param members  see plan_units
std::vector<Unit> plan_owned_units(const std::vector<ParameterSpec>& parameters,
                                   const std::vector<std::vector<std::size_t>>& members, int ranks);

/// One rank's slice of a unit as an optimizer sees it. Segments lie where the whole unit has them, counted from the
/// slice's beginning: the rank's own part of each is inside of the slice.
optim::FlatBlock block_of(const Unit& unit, const std::vector<ParameterSpec>& parameters, int rank);

}  // namespace lockstep::parallel
