// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/store/bucket_plan.hpp"

#include <lockstep/parallel/comm_hook.hpp>

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "core/text/table.hpp"

namespace lockstep::parallel {

namespace {

constexpr std::int64_t kBucketAlignment = 64;  // bytes

/// The bucket of one dtype that is being filled.
struct Filling {
  DType dtype;
  std::vector<std::size_t> members;
  std::int64_t bytes = 0;
  std::size_t limit = 0;  // place in the list of limits
};

Bucket lay_out(const std::vector<ParameterSpec>& parameters, const std::vector<std::size_t>& members) {
  const ParameterSpec& first = parameters[members.front()];
  Bucket bucket{.dtype = first.dtype, .slots = {}, .is_sparse = first.is_sparse};
  const std::int64_t step = kBucketAlignment / static_cast<std::int64_t>(size_of(bucket.dtype));
  for (const std::size_t parameter : members) {
    bucket.slots.push_back({parameter, bucket.count});
    if (!bucket.is_sparse) bucket.count += (parameters[parameter].count() + step - 1) / step * step;
  }
  return bucket;
}

std::vector<std::size_t> reversed(std::span<const std::size_t> order) { return {order.rbegin(), order.rend()}; }

}  // namespace

std::int64_t ParameterSpec::count() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

BucketAssignment assign_buckets(const std::vector<ParameterSpec>& parameters, std::span<const std::int64_t> limits,
                                std::span<const std::size_t> order) {
  if (limits.empty()) throw std::logic_error("assign_buckets: the list of limits is empty");
  BucketAssignment result;
  std::vector<Filling> filling;  // sorted by first arrival
  const auto close = [&](Filling& full) {
    result.buckets.push_back(std::move(full.members));
    result.limits.push_back(limits[full.limit]);
    full = {.dtype = full.dtype, .members = {}, .limit = std::min(full.limit + 1, limits.size() - 1)};
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::size_t parameter = order.empty() ? i : order[i];
    const ParameterSpec& spec = parameters.at(parameter);
    if (spec.is_sparse) {
      result.buckets.push_back({parameter});
      result.limits.push_back(0);
      continue;
    }
    auto open = std::find_if(filling.begin(), filling.end(), [&](const Filling& f) { return f.dtype == spec.dtype; });
    if (open == filling.end()) open = filling.insert(open, {.dtype = spec.dtype, .members = {}});
    open->members.push_back(parameter);
    open->bytes += spec.bytes();
    if (open->bytes >= limits[open->limit]) close(*open);
  }
  for (Filling& rest : filling) {
    if (!rest.members.empty()) close(rest);
  }
  if (!order.empty()) return result;

  std::vector<std::size_t> ranking(result.buckets.size());
  std::iota(ranking.begin(), ranking.end(), std::size_t{0});
  std::sort(ranking.begin(), ranking.end(), [&](std::size_t a, std::size_t b) {
    return std::ranges::min(result.buckets[a]) < std::ranges::min(result.buckets[b]);
  });
  BucketAssignment sorted;
  for (const std::size_t b : ranking) {
    sorted.buckets.push_back(std::move(result.buckets[b]));
    sorted.limits.push_back(result.limits[b]);
  }
  return sorted;
}

std::vector<Bucket> plan_buckets(const std::vector<ParameterSpec>& parameters, const BucketLimits& limits,
                                 std::span<const std::size_t> arrival) {
  const bool has_small_last = limits.bucket_bytes.size() == 1 && limits.last_bucket_bytes > 0;
  std::vector<std::vector<std::size_t>> members;
  if (has_small_last) {
    // Order from the end: the bucket filled first is reduced last.
    const std::vector<std::int64_t> from_the_end = {limits.last_bucket_bytes, limits.bucket_bytes[0]};
    members = assign_buckets(parameters, from_the_end, reversed(arrival)).buckets;
    std::reverse(members.begin(), members.end());
    if (!arrival.empty()) {
      for (auto& bucket : members) std::reverse(bucket.begin(), bucket.end());
    }
  } else if (arrival.empty()) {
    std::vector<std::size_t> backwards(parameters.size());
    std::iota(backwards.rbegin(), backwards.rend(), std::size_t{0});
    members = assign_buckets(parameters, limits.bucket_bytes, backwards).buckets;
    for (auto& bucket : members) std::reverse(bucket.begin(), bucket.end());
  } else {
    members = assign_buckets(parameters, limits.bucket_bytes, arrival).buckets;
  }
  std::vector<Bucket> buckets;
  for (const auto& bucket : members) buckets.push_back(lay_out(parameters, bucket));
  return buckets;
}

BucketLayout layout_of(const std::vector<Bucket>& buckets) {
  BucketLayout layout;
  for (const Bucket& bucket : buckets) {
    auto& members = layout.emplace_back();
    for (const Slot& slot : bucket.slots) members.push_back(slot.parameter);
  }
  return layout;
}

std::vector<Bucket> buckets_of(const std::vector<ParameterSpec>& parameters, const BucketLayout& layout) {
  std::vector<Bucket> buckets;
  std::vector<char> is_placed(parameters.size());
  for (const auto& members : layout) {
    if (members.empty()) return {};
    for (const std::size_t parameter : members) {
      if (parameter >= parameters.size() || std::exchange(is_placed[parameter], char{1}) != 0) return {};
      const ParameterSpec& first = parameters[members.front()];
      const bool is_alone = members.size() == 1;
      if (parameters[parameter].dtype != first.dtype || (parameters[parameter].is_sparse && !is_alone)) return {};
    }
    buckets.push_back(lay_out(parameters, members));
  }
  if (std::find(is_placed.begin(), is_placed.end(), char{0}) != is_placed.end()) return {};
  return buckets;
}

}  // namespace lockstep::parallel
