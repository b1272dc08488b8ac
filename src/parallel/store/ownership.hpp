// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/flat_parameters.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "parallel/store/bucket_plan.hpp"

// The parts of shared parameters that each rank of a host updates. Pure functions.

namespace lockstep::parallel {

/// The part of each parameter that one of `sharers` updates, as elements [begin, end), by parameter.
struct OwnedRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Divides the elements of every bucket evenly among sharers, with borders on whole pieces of `piece` elements of a
/// parameter. Pure.
std::vector<OwnedRange> divide_ownership(const std::vector<ParameterSpec>& parameters,
                                         const std::vector<Bucket>& buckets, int node_rank, int node_ranks,
                                         std::int64_t piece);

/// Gives one rank its parts of blocks, as divide_ownership divides them. Without buckets, all parameters are divided as
/// those of the default buckets.
/// @param index  [block][segment] -> number of the parameter
void own_by_buckets(std::span<optim::FlatBlock> blocks, const std::vector<std::vector<std::size_t>>& index,
                    const std::vector<ParameterSpec>& parameters, const std::vector<Bucket>& buckets, int node_rank,
                    int node_ranks);

/// The owner of each of some things: the largest first, each to the owner that has the least so far.
std::vector<int> balanced_owners(std::span<const std::int64_t> sizes, int owners);

/// Gives one rank whole parameters, as balanced_owners divides their elements.
void own_whole(std::span<optim::FlatBlock> blocks, int node_rank, int node_ranks);

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
