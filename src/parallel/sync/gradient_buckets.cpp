// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/sync/gradient_buckets.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "models/layers/gradient_sink.hpp"
#include "mpi/shared/device_collectives.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::parallel {

namespace {

/// The memory of the tensors of all ranks; empty for a rank without one.
std::vector<std::vector<std::byte>> gather_bytes(const at::Tensor& mine, mpi::Collectives& collectives) {
  if (!mine.defined()) return collectives.all_gather_any({});
  return collectives.all_gather_any(bytes_of(mine.cpu().contiguous()));
}

at::Tensor tensor_of(std::vector<std::byte>& bytes, at::IntArrayRef shape, const at::TensorOptions& options) {
  return at::from_blob(bytes.data(), shape, options.device(at::kCPU)).clone().to(options.device());
}

/// @param is_on_host  the memory of both is the host's
void copy_values(const at::Tensor& target, const at::Tensor& from, bool is_on_host) {
  const bool is_plain = is_on_host && target.scalar_type() == from.scalar_type();
  if (is_plain && target.strides() == from.strides() && is_flat(from)) {
    if (target.numel() > 0) std::memcpy(target.mutable_data_ptr(), from.const_data_ptr(), target.nbytes());
    return;
  }
  const torch::NoGradGuard no_grad;
  target.copy_(from);
}

}  // namespace

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
      views_[slot.parameter] = view_of(place, parameter, memory_.back().owner, scalar_type_of(bucket.dtype));
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
                  .count = static_cast<std::size_t>(std::count_if(buckets_.begin(), buckets_.end(), is_seen))};
  seen.buffer = vector_over(memory(b), bucket.count, scalar_type_of(bucket.dtype), parameters.front().tensor.device(),
                            memory_[b].owner);
  for (const Slot& slot : bucket.slots) {
    seen.gradients.push_back(views_[slot.parameter]);
    seen.parameters.push_back(parameters[slot.parameter].tensor);
    seen.places.push_back(slot.parameter);
  }
  return seen;
}

void average_sparse(const at::Tensor& parameter, mpi::Collectives& collectives, int divisor) {
  const torch::NoGradGuard no_grad;
  at::Tensor& gradient = parameter.mutable_grad();
  const at::Tensor mine = gradient.defined() ? gradient.coalesce() : at::Tensor();
  auto indices = gather_bytes(mine.defined() ? mine.indices() : at::Tensor(), collectives);
  auto values = gather_bytes(mine.defined() ? mine.values() : at::Tensor(), collectives);
  const std::int64_t row_bytes =
      static_cast<std::int64_t>(parameter.nbytes()) / std::max<std::int64_t>(1, parameter.size(0));
  const at::TensorOptions options = parameter.options().requires_grad(false);
  std::vector<at::Tensor> all_indices;
  std::vector<at::Tensor> all_values;
  for (std::size_t rank = 0; rank < indices.size(); ++rank) {
    if (indices[rank].empty()) continue;
    std::vector<std::int64_t> shape = parameter.sizes().vec();
    shape[0] = static_cast<std::int64_t>(values[rank].size()) / row_bytes;
    all_indices.push_back(tensor_of(indices[rank], {1, shape[0]}, options.dtype(at::kLong)));
    all_values.push_back(tensor_of(values[rank], shape, options));
  }
  if (all_indices.empty()) return;
  const at::Tensor sum = at::sparse_coo_tensor(at::cat(all_indices, 1), at::cat(all_values, 0), parameter.sizes(),
                                               options.layout(at::kSparse));
  gradient = sum.coalesce().div(static_cast<double>(divisor));
}

void HookSlot::set(CommHook hook, bool is_silent, bool has_stepped) {
  if (hook_) throw ConfigError("ddp: the communication hook is already set; a wrapper has only one");
  if (!hook) throw ConfigError("ddp: the communication hook is empty");
  if (has_stepped) throw ConfigError("ddp: set the communication hook before the first step");
  hook_ = std::move(hook);
  is_silent_ = is_silent;
}

void HookSlot::start(std::size_t b, const GradBucket& bucket) {
  if (completions_.size() <= b) completions_.resize(b + 1);
  completions_[b] = hook_(bucket);
  if (!completions_[b]) throw ConfigError("ddp: the communication hook returned no function");
}

void HookSlot::finish(std::size_t b, const GradBucket& bucket) {
  const at::Tensor result = completions_[b]();
  completions_[b] = nullptr;
  if (!result.defined()) throw ConfigError("ddp: the function of the communication hook returned no tensor");
  if (result.numel() != bucket.buffer.numel() || result.scalar_type() != bucket.buffer.scalar_type()) {
    throw ConfigError("ddp: the communication hook returned " + std::to_string(result.numel()) + " elements of " +
                      std::string(result.dtype().name()) + " for a bucket of " + std::to_string(bucket.buffer.numel()) +
                      " of " + std::string(bucket.buffer.dtype().name()));
  }
  if (result.data_ptr() != bucket.buffer.data_ptr()) bucket.buffer.copy_(result.view({-1}));
}

BucketedGradients::BucketedGradients(std::vector<NamedParameter> parameters, std::vector<ParameterSpec> specs)
    : parameters_(std::move(parameters)), specs_(std::move(specs)), states_(parameters_.size()) {}

BucketedGradients::~BucketedGradients() { detach_sinks(); }

void BucketedGradients::build(std::vector<Bucket> plan, std::size_t tail_count, mpi::Collectives& collectives) {
  const std::vector<at::Tensor> kept = take_out();
  detach_sinks();
  buckets_ = {};  // freed before the new ones are allocated
  buckets_ = GradientBuckets(std::move(plan), parameters_, tail_count, collectives);
  attach_sinks();
  is_on_host_ = !mpi::has_device_buckets(collectives);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!kept[i].defined()) continue;
    copy_values(buckets_.view(i), kept[i], is_on_host_);
    parameters_[i].tensor.mutable_grad() = buckets_.view(i);
  }
}

/// Copies of the gradients that lie in buckets, which `.grad` then refers to no longer.
std::vector<at::Tensor> BucketedGradients::take_out() {
  std::vector<at::Tensor> kept(parameters_.size());
  if (buckets_.size() == 0) return kept;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (!gradient.defined() || !is_in_bucket(i)) continue;
    kept[i] = gradient.clone();
    gradient.reset();
  }
  return kept;
}

void BucketedGradients::attach_sinks() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].tensor;
    const at::Tensor& view = buckets_.view(i);
    const bool fits =
        view.defined() && view.scalar_type() == parameter.scalar_type() && view.strides() == parameter.strides();
    if (fits) models::attach_sink(parameter, view);
  }
}

void BucketedGradients::detach_sinks() {
  for (const NamedParameter& parameter : parameters_) models::detach_sink(parameter.tensor);
}

std::string BucketedGradients::cite(std::size_t parameter) const {
  return "parameter at index " + std::to_string(parameter) + " ('" + parameters_[parameter].name + "')";
}

void BucketedGradients::note_use(std::size_t parameter, bool has_gradient) {
  models::GradientSink* const sink = models::sink_of(parameters_[parameter].tensor);
  // Whether a layer wrote it straight into the bucket since the last call.
  const bool is_written = sink != nullptr && std::exchange(sink->is_written, false);
  if (is_written || has_gradient) states_[parameter].is_used = true;
}

void BucketedGradients::begin_step() {
  for (GradientState& state : states_) {
    state.has_graph = false;
    state.stale.reset();
  }
}

void BucketedGradients::clear_uses() {
  for (GradientState& state : states_) state.is_used = false;
}

/// Whether `.grad` lies in the bucket.
bool BucketedGradients::is_in_bucket(std::size_t parameter) const {
  const at::Tensor& gradient = parameters_[parameter].tensor.grad();
  const at::Tensor& view = buckets_.view(parameter);
  return view.defined() && !gradient.is_sparse() && gradient.data_ptr() == view.data_ptr() &&
         gradient.strides() == view.strides();
}

void BucketedGradients::pack(std::size_t parameter) {
  GradientState& state = states_[parameter];
  at::Tensor& gradient = parameters_[parameter].tensor.mutable_grad();
  if (is_sparse(parameter)) {
    if (!gradient.defined() || gradient.is_sparse()) return;
    throw ConfigError("ddp: the gradient of " + cite(parameter) + " is dense, expected sparse");
  }
  if (!gradient.defined()) return pack_zero(parameter);  // stays undefined unless another rank has one
  const at::Tensor& view = buckets_.view(parameter);
  if (!state.is_used) state.stale = gradient.clone();
  if (is_in_bucket(parameter)) return;
  if (gradient.is_sparse() || gradient.scalar_type() != view.scalar_type()) {
    throw ConfigError("ddp: the gradient of " + cite(parameter) + " is " + (gradient.is_sparse() ? "sparse " : "") +
                      std::string(gradient.dtype().name()) + ", expected dense " + std::string(view.dtype().name()));
  }
  copy_values(view, gradient, is_on_host_);
  state.has_graph = gradient.requires_grad();
  if (!state.has_graph) gradient = view;
}

void BucketedGradients::pack_zero(std::size_t parameter) {
  const torch::NoGradGuard no_grad;
  if (buckets_.view(parameter).defined()) buckets_.view(parameter).zero_();
}

void BucketedGradients::assign(std::size_t parameter, double factor) {
  const torch::NoGradGuard no_grad;
  at::Tensor& gradient = parameters_[parameter].tensor.mutable_grad();
  const at::Tensor& view = buckets_.view(parameter);
  if (factor != 1) view.mul_(factor);
  if (states_[parameter].has_graph) {
    gradient.variable_data().copy_(view);  // keeps the graph of this rank's part: higher orders are not averaged
    if (!std::exchange(has_warned_of_graph_, true)) {
      log::warning(
          "ddp: backward was called with create_graph: first-order gradients are averaged over ranks, higher orders "
          "are "
          "not");
    }
  } else {
    gradient = view;
  }
}

void BucketedGradients::restore_stale(std::size_t parameter) {
  const at::Tensor& stale = states_[parameter].stale;
  if (stale.defined()) copy_values(buckets_.view(parameter), stale, is_on_host_);
}

}  // namespace lockstep::parallel
