// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/table.hpp>
#include <lockstep/parallel/bucket_plan.hpp>
#include <lockstep/parallel/comm_hook.hpp>

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <utility>

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

std::int64_t ParameterSpec::bytes() const { return count() * static_cast<std::int64_t>(size_of(dtype)); }

BucketAssignment assign_buckets(const std::vector<ParameterSpec>& parameters, std::span<const std::int64_t> limits,
                                std::span<const std::size_t> order) {
  if (limits.empty()) throw std::logic_error("assign_buckets: no limits");
  BucketAssignment result;
  std::vector<Filling> filling;  // in order of first arrival
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
    // From the end: the bucket filled first is reduced last.
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

std::vector<OwnedRange> divide_ownership(const std::vector<ParameterSpec>& parameters,
                                         const std::vector<Bucket>& buckets, int sharer, int sharers,
                                         std::int64_t piece) {
  std::vector<OwnedRange> owned(parameters.size());
  for (const Bucket& bucket : buckets) {
    if (bucket.is_sparse) {  // whole to one
      const std::size_t parameter = bucket.slots.front().parameter;
      if (sharer == static_cast<int>(parameter) % sharers) owned[parameter] = {0, parameters[parameter].count()};
      continue;
    }
    const double share = static_cast<double>(bucket.count) / sharers;
    const auto low = static_cast<std::int64_t>(share * sharer);
    const auto high = sharer + 1 == sharers ? bucket.count : static_cast<std::int64_t>(share * (sharer + 1));
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

KeySpecs ddp_keys() {
  std::vector<std::string> hooks = {"none"};
  std::string hook_help = "how gradients travel: none (as they are)";
  for (const CommHookRow& row : builtin_comm_hooks()) {
    hooks.push_back(row.name);
    hook_help += ", " + row.name + " (" + row.help + ")";
  }
  const KeySpecs common = {
      {.name = "ddp.bucket_bytes",
       .type = KeyType::integers,
       .default_value = "26214400",
       .help = "gradient bytes that are reduced together; a list: of the first buckets in order, the last repeats",
       .min = 1},
      {.name = "ddp.last_bucket_bytes",
       .type = KeyType::integer,
       .default_value = "1048576",
       .help = "the same for the bucket that is reduced last, which no computation hides; 0: like the others",
       .min = 0},
      {.name = "ddp.find_unused_parameters",
       .type = KeyType::boolean,
       .default_value = "false",
       .help = "search each step's graph for parameters that the loss does not use; else every one must be used"},
      {.name = "ddp.static_graph",
       .type = KeyType::boolean,
       .default_value = "false",
       .help = "the graph is the same in every step: parameters may be used several times or never"},
      {.name = "ddp.buffers",
       .type = KeyType::choice,
       .default_value = "off",
       .help = "buffers between ranks: off (averaged before an evaluation or checkpoint only), broadcast (rank 0's, "
               "before each step) or average (before each step)",
       .choices = {"off", "broadcast", "average"}},
      {.name = "ddp.comm_hook", .type = KeyType::choice, .default_value = "none", .help = hook_help, .choices = hooks},
      {.name = "ddp.sync_batch_norm",
       .type = KeyType::boolean,
       .default_value = "false",
       .help = "normalise training batches by the statistics of all ranks' samples"},
      {.name = "ddp.detect_anomalous_params",
       .type = KeyType::choice,
       .default_value = "off",
       .help = "name trained parameters outside the loss's graph: in the first step or in every step",
       .choices = {"off", "once", "always"}},
      {.name = "ddp.shared_parameters",
       .type = KeyType::choice,
       .default_value = "auto",
       .help = "keep one copy of the parameters per host; auto: where the backend has shared memory",
       .choices = {"auto", "true", "false"}},
      {.name = "ddp.weigh_samples",
       .type = KeyType::boolean,
       .default_value = "false",
       .help = "a step that is not told its weight counts samples instead of ranks; trainer always does, by its plan"},
      {.name = "ddp.check_writes",
       .type = KeyType::boolean,
       .default_value = "false",
       .help = "for finding mistakes: who writes to a parameter outside of an update is named, and the run ends"},
      {.name = "ddp.report",
       .type = KeyType::boolean,
       .default_value = "false",
       .help = "tell at the end what bounds a step, with the times of each bucket on the slowest rank, and draw them "
               "into ddp.svg"},
  };
  return keys_of_rows(common, builtin_comm_hooks());
}

}  // namespace lockstep::parallel
