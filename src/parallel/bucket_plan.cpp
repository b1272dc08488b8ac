// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/parallel/bucket_plan.hpp>

#include <algorithm>
#include <functional>
#include <numeric>

namespace lockstep::parallel {

namespace {

constexpr std::int64_t kAlignment = 64;  // bytes

/// A bucket that is still being filled.
struct Open {
  Bucket bucket;
  std::int64_t bytes = 0;  // of parameters, without padding
  bool is_first_of_dtype = true;
};

void append(Open& open, std::size_t parameter, const ParameterSpec& spec) {
  const auto element = static_cast<std::int64_t>(size_of(spec.dtype));
  const std::int64_t step = kAlignment / element;
  open.bucket.slots.push_back({parameter, open.bucket.count});
  open.bucket.count += (spec.count() + step - 1) / step * step;
  open.bytes += spec.count() * element;
}

}  // namespace

std::int64_t ParameterSpec::count() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<Bucket> plan_buckets(const std::vector<ParameterSpec>& parameters, const BucketLimits& limits) {
  std::vector<Bucket> buckets;
  std::vector<Open> open;  // one per dtype, in order of first arrival
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ParameterSpec& spec = parameters[i];
    auto found = std::find_if(open.begin(), open.end(), [&](const Open& o) { return o.bucket.dtype == spec.dtype; });
    if (found == open.end()) {
      open.push_back({.bucket = {.dtype = spec.dtype, .slots = {}}});
      found = std::prev(open.end());
    }
    append(*found, i, spec);
    if (found->bytes >= (found->is_first_of_dtype ? limits.last_bucket_bytes : limits.bucket_bytes)) {
      buckets.push_back(std::move(found->bucket));
      *found = {.bucket = {.dtype = spec.dtype, .slots = {}}, .is_first_of_dtype = false};
    }
  }
  for (Open& rest : open) {
    if (!rest.bucket.slots.empty()) buckets.push_back(std::move(rest.bucket));
  }
  std::sort(buckets.begin(), buckets.end(),
            [](const Bucket& a, const Bucket& b) { return a.slots.front().parameter > b.slots.front().parameter; });
  return buckets;
}

KeySpecs ddp_keys() {
  return {
      {.name = "ddp.bucket_bytes",
       .type = KeyType::integer,
       .default_value = "26214400",
       .help = "gradient bytes that are reduced together",
       .min = 1},
      {.name = "ddp.last_bucket_bytes",
       .type = KeyType::integer,
       .default_value = "1048576",
       .help = "the same for the bucket that is reduced last, which no computation hides",
       .min = 1},
      {.name = "ddp.shared_parameters",
       .type = KeyType::choice,
       .default_value = "auto",
       .help = "keep one copy of the parameters per host; auto: where several ranks use the shm backend",
       .choices = {"auto", "true", "false"}},
  };
}

}  // namespace lockstep::parallel
