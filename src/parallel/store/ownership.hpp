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

}  // namespace lockstep::parallel
