// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/dtype.hpp>
#include <lockstep/core/section.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::parallel {

/// What bucket assignment needs to know of a parameter.
struct ParameterSpec {
  std::string name;
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;

  std::int64_t count() const;  ///< elements
};

/// One parameter's place in a bucket. Offsets are multiples of 64 bytes.
struct Slot {
  std::size_t parameter = 0;  ///< index in registration order
  std::int64_t offset = 0;    ///< elements from the start of the bucket
};

/// Parameters of one dtype whose gradients are reduced by one collective.
struct Bucket {
  DType dtype = DType::float32;
  std::vector<Slot> slots;  ///< in registration order
  std::int64_t count = 0;   ///< elements, padding included
};

struct BucketLimits {
  std::int64_t bucket_bytes = 25 << 20;
  std::int64_t last_bucket_bytes = 1 << 20;  ///< of the bucket that is reduced last, which nothing can hide
};

/// Divides parameters into buckets, in the order in which they are reduced: the last parameters first, because
/// backward reaches them first. The same on every rank for the same parameters.
///
/// Walks the parameters in registration order and closes a bucket when its bytes reach its limit, so a bucket exceeds
/// its limit by at most one parameter and no parameter is divided; each dtype has buckets, and a row of limits, of its
/// own.
std::vector<Bucket> plan_buckets(const std::vector<ParameterSpec>& parameters, const BucketLimits& limits);

/// The keys of section `ddp`.
KeySpecs ddp_keys();

}  // namespace lockstep::parallel
