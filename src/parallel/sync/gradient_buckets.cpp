// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/sync/gradient_buckets.hpp"

#include <torch/types.h>

#include <algorithm>
#include <utility>

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
  if (!collectives.has_device_buckets()) return;
  const at::Device device = parameters.front().tensor.device();
  const at::TensorOptions options = at::TensorOptions().dtype(scalar_type_of(buckets_.back().dtype));
  device_tail_ = at::from_blob(
      const_cast<std::byte*>(tail_memory()), {static_cast<std::int64_t>(tail_count_)},
      [owner = memory_.back().owner](void*) {}, options.device(device), device);
}

std::size_t GradientBuckets::reduced_count(std::size_t b) const {
  return static_cast<std::size_t>(buckets_[b].count) + (b + 1 == buckets_.size() ? tail_count_ : 0);
}

mpi::Slice GradientBuckets::tail_slice() const {
  return {.begin = static_cast<std::size_t>(buckets_.back().count), .count = tail_count_};
}

const std::byte* GradientBuckets::tail_memory() const {
  return memory_.back().bytes.data() + tail_slice().begin * size_of(buckets_.back().dtype);
}

void GradientBuckets::write_tail(std::span<const double> values) {
  if (!device_tail_.defined()) return encode_tail(values, const_cast<std::byte*>(tail_memory()));
  // Used if every parameter is used: without memory of the host, which a captured step could not read again.
  if (std::all_of(values.begin() + 1, values.end(), [](double value) { return value == 1; })) {
    const torch::NoGradGuard no_grad;
    device_tail_.fill_(1);
    device_tail_.narrow(0, 0, 1).fill_(values[0]);
    return;
  }
  // LibTorch gives pinned memory away again only when copies from it are over.
  const at::TensorOptions on_host = device_tail_.options().device(at::kCPU);
  const at::Tensor encoded = at::empty(device_tail_.sizes(), on_host.pinned_memory(device_tail_.is_cuda()));
  encode_tail(values, static_cast<std::byte*>(encoded.mutable_data_ptr()));
  device_tail_.copy_(encoded, /*non_blocking=*/true);
}

void GradientBuckets::encode_tail(std::span<const double> values, std::byte* place) const {
  switch (buckets_.back().dtype) {
    case DType::float32:
      std::copy(values.begin(), values.end(), reinterpret_cast<float*>(place));
      return;
    case DType::float64:
      std::copy(values.begin(), values.end(), reinterpret_cast<double*>(place));
      return;
    case DType::bfloat16:
      std::transform(values.begin(), values.end(), reinterpret_cast<std::uint16_t*>(place),
                     [](double value) { return float_to_bfloat16(static_cast<float>(value)); });
      return;
    default:
      std::transform(values.begin(), values.end(), reinterpret_cast<std::uint16_t*>(place),
                     [](double value) { return float_to_half(static_cast<float>(value)); });
  }
}

std::vector<double> GradientBuckets::read_tail() const {
  if (!device_tail_.defined()) return read_tail(tail_memory());
  const at::Tensor values = device_tail_.cpu();
  return read_tail(static_cast<const std::byte*>(values.const_data_ptr()));
}

std::vector<double> GradientBuckets::read_tail(const std::byte* memory) const {
  std::vector<double> values(tail_count_);
  for (std::size_t i = 0; i < tail_count_; ++i) {
    switch (buckets_.back().dtype) {
      case DType::float32:
        values[i] = reinterpret_cast<const float*>(memory)[i];
        break;
      case DType::float64:
        values[i] = reinterpret_cast<const double*>(memory)[i];
        break;
      case DType::bfloat16:
        values[i] = bfloat16_to_float(reinterpret_cast<const std::uint16_t*>(memory)[i]);
        break;
      default:
        values[i] = half_to_float(reinterpret_cast<const std::uint16_t*>(memory)[i]);
    }
  }
  return values;
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
  const at::TensorOptions options = parameters.front().tensor.options().requires_grad(false);
  seen.buffer = at::from_blob(
      memory(b), {bucket.count}, [owner = memory_[b].owner](void*) {}, options.dtype(scalar_type_of(bucket.dtype)),
      options.device());
  for (const Slot& slot : bucket.slots) {
    seen.gradients.push_back(views_[slot.parameter]);
    seen.parameters.push_back(parameters[slot.parameter].tensor);
    seen.places.push_back(slot.parameter);
  }
  return seen;
}

}  // namespace lockstep::parallel
