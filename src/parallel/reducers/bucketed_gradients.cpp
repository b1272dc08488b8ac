// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/reducers/bucketed_gradients.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <torch/types.h>

#include <cstring>
#include <utility>

#include "models/layers/gradient_sink.hpp"
#include "mpi/shared/device_collectives.hpp"
#include "parallel/store/tensor_collectives.hpp"
#include "parallel/sync/sparse_gradients.hpp"

namespace lockstep::parallel {

namespace {

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

/// Whether a layer wrote this parameter's gradient straight into the bucket since the last call.
bool BucketedGradients::take_sink_write(std::size_t parameter) {
  models::GradientSink* const sink = models::sink_of(parameters_[parameter].tensor);
  return sink != nullptr && std::exchange(sink->is_written, false);
}

void BucketedGradients::note_use(std::size_t parameter, bool has_gradient) {
  bool& is_used = states_[parameter].is_used;
  is_used = take_sink_write(parameter) || has_gradient || is_used;
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
    require_sparse(gradient, cite(parameter));
    return;
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
    warn_of_graph();
  } else {
    gradient = view;
  }
}

void BucketedGradients::restore_stale(std::size_t parameter) {
  const at::Tensor& stale = states_[parameter].stale;
  if (stale.defined()) copy_values(buckets_.view(parameter), stale, is_on_host_);
}

void BucketedGradients::warn_of_graph() {
  if (std::exchange(has_warned_of_graph_, true)) return;
  log::warning(
      "ddp: backward was called with create_graph: first-order gradients are averaged over ranks, higher orders are "
      "not");
}

}  // namespace lockstep::parallel
