// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/parallel/comm_hook.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "parallel/store/bucket_plan.hpp"
#include "parallel/store/named_parameter.hpp"

namespace lockstep::parallel {

/// The memory of buckets, and every parameter's place in it.
///
/// Behind the gradients of the last bucket lies the tail: numbers of the same dtype that travel with it.
class GradientBuckets {
 public:
  GradientBuckets() = default;
  /// Collective: allocates.
  GradientBuckets(std::vector<Bucket> buckets, const std::vector<NamedParameter>& parameters, std::size_t tail_count,
                  mpi::Collectives& collectives);

  std::size_t size() const noexcept { return buckets_.size(); }
  const std::vector<Bucket>& plan() const noexcept { return buckets_; }
  const Bucket& bucket(std::size_t b) const { return buckets_[b]; }
  std::size_t bucket_of(std::size_t parameter) const { return bucket_of_[parameter]; }
  std::int64_t offset_of(std::size_t parameter) const { return offset_of_[parameter]; }

  /// A view of the parameter's gradient, of its shape and strides; undefined where gradients are sparse.
  const at::Tensor& view(std::size_t parameter) const { return views_[parameter]; }
  std::byte* memory(std::size_t b) const { return memory_[b].bytes.data(); }
  std::size_t element_bytes(std::size_t b) const { return size_of(buckets_[b].dtype); }

  /// Elements that the collective of a bucket takes: the last one's include the tail.
  std::size_t reduced_count(std::size_t b) const;
  mpi::Slice tail_slice() const;
  void write_tail(std::span<const double> values);
  /// The tail, where its bucket is.
  const at::Tensor& tail() const noexcept { return tail_; }

  /// The bucket as a communication hook sees it.
  GradBucket as_hook_sees(std::size_t b, const std::vector<NamedParameter>& parameters) const;

 private:
  std::vector<Bucket> buckets_;
  std::size_t tail_count_ = 0;
  at::Tensor tail_;
  std::vector<mpi::BucketMemory> memory_;  // memory of each bucket
  std::vector<std::size_t> bucket_of_;     // bucket of each parameter
  std::vector<std::int64_t> offset_of_;    // offset of each parameter in its bucket
  std::vector<at::Tensor> views_;          // view of each parameter's gradient
};

/// The numbers of a tail, wherever it was reduced to. If it is on a GPU, the host waits for it here.
std::vector<double> numbers_in(const at::Tensor& tail);

}  // namespace lockstep::parallel
