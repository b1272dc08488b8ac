// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/store/ownership.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep::parallel {

std::vector<OwnedRange> divide_ownership(const std::vector<ParameterSpec>& parameters,
                                         const std::vector<Bucket>& buckets, int node_rank, int node_ranks,
                                         std::int64_t piece) {
  std::vector<OwnedRange> owned(parameters.size());
  for (const Bucket& bucket : buckets) {
    if (bucket.is_sparse) {  // whole to one
      const std::size_t parameter = bucket.slots.front().parameter;
      if (node_rank == static_cast<int>(parameter) % node_ranks) owned[parameter] = {0, parameters[parameter].count()};
      continue;
    }
    const double share = static_cast<double>(bucket.count) / node_ranks;
    const auto low = static_cast<std::int64_t>(share * node_rank);
    const auto high = node_rank + 1 == node_ranks ? bucket.count : static_cast<std::int64_t>(share * (node_rank + 1));
    for (const Slot& slot : bucket.slots) {
      const std::int64_t count = parameters[slot.parameter].count();
      const auto border = [&](std::int64_t position) {
        const std::int64_t inside = std::clamp<std::int64_t>(position - slot.offset, 0, count);
        return inside == count ? count : std::min(count, (inside + piece / 2) / piece * piece);
      };
      owned[slot.parameter] = {border(low), border(high)};
    }
  }
  return owned;
}

void own_by_buckets(std::span<optim::FlatBlock> blocks, const std::vector<std::vector<std::size_t>>& index,
                    const std::vector<ParameterSpec>& parameters, const std::vector<Bucket>& buckets, int node_rank,
                    int node_ranks) {
  const std::vector<OwnedRange> owned =
      divide_ownership(parameters, buckets.empty() ? plan_buckets(parameters, {}) : buckets, node_rank, node_ranks,
                       optim::kPieceElements);
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    for (std::size_t s = 0; s < blocks[b].segments.size(); ++s) {
      blocks[b].segments[s].own_begin = owned[index[b][s]].begin;
      blocks[b].segments[s].own_end = owned[index[b][s]].end;
    }
  }
}

std::vector<int> balanced_owners(std::span<const std::int64_t> sizes, int owners) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  std::vector<std::int64_t> loads(static_cast<std::size_t>(owners));
  std::vector<int> result(sizes.size());
  for (const std::size_t i : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += sizes[i];
    result[i] = static_cast<int>(least - loads.begin());
  }
  return result;
}

void own_whole(std::span<optim::FlatBlock> blocks, int node_rank, int node_ranks) {
  std::vector<std::int64_t> counts;
  for (const optim::FlatBlock& block : blocks) {
    for (const optim::Segment& segment : block.segments) counts.push_back(segment.count);
  }
  const std::vector<int> owners = balanced_owners(counts, node_ranks);
  auto owner = owners.begin();
  for (optim::FlatBlock& block : blocks) {
    for (optim::Segment& segment : block.segments) {
      segment.own_begin = 0;
      segment.own_end = *owner++ == node_rank ? segment.count : 0;
    }
  }
}

}  // namespace lockstep::parallel
