// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/store/shard_ranks.hpp"

#include <algorithm>

#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::parallel {

ShardRanks::ShardRanks(mpi::Collectives& all, const mpi::Topology& topology) : all_(&all) {
  if (topology.host_count == 1) return;
  inside_ = all.split(topology.host_index);
  across_ = all.split(topology.local_rank);
}

void ShardRanks::sum(std::span<double> values) const {
  if (!is_in_first_copy()) std::fill(values.begin(), values.end(), 0.0);
  all_->all_reduce(values.data(), values.size(), DType::float64, mpi::ReduceOp::sum);
}

void ShardRanks::sum(const at::Tensor& values) const {
  if (!is_in_first_copy()) values.zero_();
  all_reduce(values, *all_, mpi::ReduceOp::sum);
}

}  // namespace lockstep::parallel
