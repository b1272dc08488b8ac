// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/sync/gradient_buckets.hpp"

#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "mpi/shared/device_collectives.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::parallel {

GradientBuckets::GradientBuckets(std::vector<Bucket> buckets, const std::vector<NamedParameter>& parameters,
                                 std::size_t tail_count, mpi::Collectives& collectives)
    : buckets_(std::move(buckets)),
      tail_count_(tail_count),
      bucket_of_(parameters.size()),
      offset_of_(parameters.size()),
      views_(parameters.size()) {
  // The tail needs a dense bucket that is reduced last.
  if (buckets_.empty() || buckets_.back().is_sparse) buckets_.push_back({.dtype = DType::float32, .slots = {}});
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    memory_.push_back(collectives.allocate_bucket(reduced_count(b) * element_bytes(b)));
    for (const Slot& slot : bucket.slots) {
      bucket_of_[slot.parameter] = b;
      offset_of_[slot.parameter] = slot.offset;
      if (bucket.is_sparse) continue;
      std::byte* const place = memory(b) + static_cast<std::size_t>(slot.offset) * element_bytes(b);
      const at::Tensor& parameter = parameters[slot.parameter].tensor;
      views_[slot.parameter] = view_of(place, parameter, scalar_type_of(bucket.dtype), memory_.back().owner);
    }
  }
  const at::Device device = mpi::has_device_buckets(collectives) ? parameters.front().tensor.device() : at::kCPU;
  std::byte* const place = memory_.back().bytes.data() + tail_slice().begin * size_of(buckets_.back().dtype);
  tail_ = vector_over(place, static_cast<std::int64_t>(tail_count_), scalar_type_of(buckets_.back().dtype), device,
                      memory_.back().owner);
}

std::size_t GradientBuckets::reduced_count(std::size_t b) const {
  return static_cast<std::size_t>(buckets_[b].count) + (b + 1 == buckets_.size() ? tail_count_ : 0);
}

mpi::Slice GradientBuckets::tail_slice() const {
  return {.begin = static_cast<std::size_t>(buckets_.back().count), .count = tail_count_};
}

void GradientBuckets::write_tail(std::span<const double> values) {
  const torch::NoGradGuard no_grad;
  const at::Tensor given = at::from_blob(const_cast<double*>(values.data()), tail_.sizes(), at::kDouble);
  if (!tail_.is_cuda()) {
    tail_.copy_(given);
    return;
  }
  // Used if every parameter is used: without memory of the host, which a captured step could not read again.
  if (std::all_of(values.begin() + 1, values.end(), [](double value) { return value == 1; })) {
    tail_.fill_(1);
    tail_.narrow(0, 0, 1).fill_(values[0]);
    return;
  }
  // LibTorch gives pinned memory away again only when copies from it are over.
  const at::Tensor encoded = at::empty(tail_.sizes(), tail_.options().device(at::kCPU).pinned_memory(true));
  encoded.copy_(given);
  tail_.copy_(encoded, /*non_blocking=*/true);
}

std::vector<double> numbers_in(const at::Tensor& tail) {
  const at::Tensor numbers = tail.cpu().to(at::kDouble);
  const double* const begin = numbers.const_data_ptr<double>();
  return {begin, begin + numbers.numel()};
}

GradBucket GradientBuckets::as_hook_sees(std::size_t b, const std::vector<NamedParameter>& parameters) const {
  const Bucket& bucket = buckets_[b];
  const auto is_seen = [](const Bucket& each) { return !each.is_sparse && !each.slots.empty(); };
  const auto here = buckets_.begin() + static_cast<std::ptrdiff_t>(b);
  GradBucket seen{.index = static_cast<std::size_t>(std::count_if(buckets_.begin(), here, is_seen)),
                  .count = static_cast<std::size_t>(std::count_if(buckets_.begin(), buckets_.end(), is_seen)),
                  .buffer = {},
                  .gradients = {},
                  .parameters = {},
                  .places = {}};
  seen.buffer = vector_over(memory(b), bucket.count, scalar_type_of(bucket.dtype), parameters.front().tensor.device(),
                            memory_[b].owner);
  for (const Slot& slot : bucket.slots) {
    seen.gradients.push_back(views_[slot.parameter]);
    seen.parameters.push_back(parameters[slot.parameter].tensor);
    seen.places.push_back(slot.parameter);
  }
  return seen;
}

}  // namespace lockstep::parallel
