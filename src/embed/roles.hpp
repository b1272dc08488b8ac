// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <vector>

namespace lockstep::embed {

/// The roles of the ranks of a session: each trains, or only produces samples for ranks that train.
struct RankRoles {
  std::vector<bool> is_producer = {};  ///< one per rank
  std::vector<int> host_of_rank = {};  ///< a number for the host of each rank; empty without producers

  bool has_producers() const;
  /// The rank that each producer sends its samples to; -1 for ranks that train.
  /// @param by_host  one of the producer's own host, if there is one
  std::vector<int> receivers(bool by_host) const;
};

/// Collective.
/// @param is_producer  of this rank
/// @throws ConfigError  no rank trains; on every rank
RankRoles agree_on_roles(const mpi::Communicator& all, bool is_producer);

}  // namespace lockstep::embed
