// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>
#include <lockstep/parallel/ddp_options.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::parallel {

/// The facts that bucket assignment needs to know of a parameter.
struct ParameterSpec {
  std::string name;
  DType dtype = DType::float32;  ///< dtype of its gradient
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  bool is_sparse = false;  ///< its gradient is a sparse tensor

  std::int64_t count() const;  ///< elements
  std::int64_t bytes() const { return count() * static_cast<std::int64_t>(size_of(dtype)); }
};

/// Parameters that share buckets, as numbers, and the limit under which each bucket was filled.
struct BucketAssignment {
  std::vector<std::vector<std::size_t>> buckets;
  std::vector<std::int64_t> limits;  ///< bytes; 0 = none, for a sparse gradient alone in its bucket
};

/// Divides parameters into buckets. Pure: the same on every rank for the same arguments.
///
/// Walks the parameters in the given order. Each dtype has a bucket of its own that is being filled, and its own place
/// in the list of limits; a bucket is closed when its bytes reach its limit, and the next takes the next limit (the
/// last repeats). So no parameter is divided, and a bucket exceeds its limit by less than one parameter. A sparse
/// gradient makes a bucket by itself. What is still open at the end is closed in order of first arrival.
///
/// @param limits  bytes; at least one
/// @param order   numbers of parameters in the order to walk; empty = as they are, and the buckets are sorted by their
///                smallest number; otherwise buckets stay in the order in which they were closed
/// Source of the rules: PyTorch's compute_bucket_assignment_by_size.
BucketAssignment assign_buckets(const std::vector<ParameterSpec>& parameters, std::span<const std::int64_t> limits,
                                std::span<const std::size_t> order = {});

/// One parameter's place in a bucket. Offsets are multiples of 64 bytes.
struct Slot {
  std::size_t parameter = 0;  ///< index in registration order
  std::int64_t offset = 0;    ///< elements from the start of the bucket
};

/// Parameters of one dtype whose gradients are reduced by one collective.
struct Bucket {
  DType dtype = DType::float32;
  std::vector<Slot> slots;
  std::int64_t count = 0;  ///< elements, padding included
  bool is_sparse = false;  ///< one parameter, whose gradient travels as indices and values
};

/// The buckets in the order in which they are reduced.
/// @param arrival  parameters in the order in which their gradients come; empty = not known, the last parameter first
std::vector<Bucket> plan_buckets(const std::vector<ParameterSpec>& parameters, const BucketLimits& limits,
                                 std::span<const std::size_t> arrival = {});

/// Parameters that share buckets, by number, in the order in which they are reduced.
using BucketLayout = std::vector<std::vector<std::size_t>>;

BucketLayout layout_of(const std::vector<Bucket>& buckets);

/// The buckets of a given layout; none where it does not fit: each parameter must be in one bucket, a bucket must be of
/// one dtype, and a sparse gradient alone in its own.
std::vector<Bucket> buckets_of(const std::vector<ParameterSpec>& parameters, const BucketLayout& layout);

}  // namespace lockstep::parallel
