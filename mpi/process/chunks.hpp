// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

namespace lockstep::mpi {

/// Most elements in one MPI call, whose counts are ints. Tests lower it to try the cutting with little memory.
inline std::size_t max_chunk = std::numeric_limits<int>::max();

/// Calls `visit(begin, count)` for consecutive pieces of `total` elements, none longer than `limit`.
template <class Visit>
void for_each_chunk(std::size_t total, std::size_t limit, Visit visit) {
  for (std::size_t begin = 0; begin < total; begin += limit) visit(begin, std::min(limit, total - begin));
}

}  // namespace lockstep::mpi
