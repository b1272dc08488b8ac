// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/store/shard_ranks.hpp"

namespace lockstep::parallel {

ShardRanks::ShardRanks(mpi::Collectives& all, const mpi::Topology& topology) : all_(&all) {
  if (topology.host_count == 1) return;
  inside_ = all.split(topology.host_index);
  across_ = all.split(topology.local_rank);
}

}  // namespace lockstep::parallel
