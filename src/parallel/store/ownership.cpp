// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/store/ownership.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep::parallel {

namespace {

constexpr std::int64_t kLine = 64;  // bytes

std::int64_t rounded_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

std::int64_t line_of(const ParameterSpec& spec) { return kLine / static_cast<std::int64_t>(size_of(spec.dtype)); }

/// The slots for slices of this size; the last may end beyond the last slice.
std::vector<Slot> place(const std::vector<ParameterSpec>& parameters, const std::vector<std::size_t>& members,
                        std::int64_t slice) {
  std::vector<Slot> slots;
  std::int64_t position = 0;
  for (const std::size_t parameter : members) {
    const ParameterSpec& spec = parameters[parameter];
    position = rounded_up(position, line_of(spec));
    const std::int64_t border = (position / slice + 1) * slice;
    if (position + spec.count() > border) position = rounded_up(position, optim::kPieceElements);
    slots.push_back({parameter, position});
    position += spec.count();
  }
  return slots;
}

Unit owned_unit(const std::vector<ParameterSpec>& parameters, std::vector<std::size_t> members,
                const std::vector<int>& owners, int ranks) {
  std::stable_sort(members.begin(), members.end(), [&](std::size_t a, std::size_t b) { return owners[a] < owners[b]; });
  Unit unit{.dtype = parameters[members.front()].dtype, .slots = {}, .borders = {0}};
  std::int64_t end = 0;
  auto next = members.begin();
  for (int rank = 0; rank < ranks; ++rank) {
    for (; next != members.end() && owners[*next] == rank; ++next) {
      unit.slots.push_back({*next, end});
      end += rounded_up(parameters[*next].count(), line_of(parameters[*next]));
    }
    unit.borders.push_back(end);
  }
  unit.borders.back() = std::max(end, line_of(parameters[members.front()]));  // some memory, even for nothing
  return unit;
}

}  // namespace

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

int Unit::owner_of(const Slot& slot) const {
  const auto next = std::upper_bound(borders.begin() + 1, borders.end() - 1, slot.offset);
  return static_cast<int>(next - borders.begin()) - 1;
}

std::vector<Unit> plan_units(const std::vector<ParameterSpec>& parameters,
                             const std::vector<std::vector<std::size_t>>& members, int ranks) {
  std::vector<Unit> units;
  for (const std::vector<std::size_t>& of_unit : members) {
    Unit unit{.dtype = parameters[of_unit.front()].dtype, .slots = {}, .borders = {}};
    std::int64_t total = 1;
    for (const std::size_t parameter : of_unit) total += parameters[parameter].count();
    std::int64_t slice = rounded_up((total + ranks - 1) / ranks, optim::kPieceElements);
    // Alignment may need a little more than the parameters alone: each border costs at most one piece.
    for (;; slice += optim::kPieceElements) {
      unit.slots = place(parameters, of_unit, slice);
      if (unit.slots.back().offset + parameters[of_unit.back()].count() <= slice * ranks) break;
    }
    for (int rank = 0; rank <= ranks; ++rank) unit.borders.push_back(slice * rank);
    units.push_back(std::move(unit));
  }
  return units;
}

std::vector<Unit> plan_owned_units(const std::vector<ParameterSpec>& parameters,
                                   const std::vector<std::vector<std::size_t>>& members, int ranks) {
  std::vector<std::int64_t> bytes;
  for (const ParameterSpec& parameter : parameters) bytes.push_back(parameter.bytes());
  const std::vector<int> owners = balanced_owners(bytes, ranks);
  std::vector<Unit> units;
  for (const std::vector<std::size_t>& of_unit : members) {
    units.push_back(owned_unit(parameters, of_unit, owners, ranks));
  }
  return units;
}

optim::FlatBlock block_of(const Unit& unit, const std::vector<ParameterSpec>& parameters, int rank) {
  optim::FlatBlock block{
      .dtype = unit.dtype, .parameters = nullptr, .count = unit.slice(rank), .segments = {}, .is_slice = true};
  const std::int64_t first = unit.begin(rank);
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
                              .own_end = inside(first + block.count)});
  }
  return block;
}

}  // namespace lockstep::parallel
