// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>
#include <lockstep/parallel/synchronization.hpp>

#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>

#include "parallel/store/tensor_collectives.hpp"
#include "parallel/sync/gradient_buckets.hpp"

namespace lockstep::parallel {

namespace {

void require_root(int root, const mpi::Collectives& collectives) {
  if (root >= 0 && root < collectives.world_size()) return;
  throw ConfigError("manual synchronization: the root " + std::to_string(root) + " is not one of " +
                    std::to_string(collectives.world_size()) + " ranks");
}

template <class Named>
void broadcast_named(const Named& tensors, const ManualSync& sync, mpi::Collectives& collectives) {
  for (const auto& item : tensors) {
    const bool is_ignored = std::find(sync.ignored.begin(), sync.ignored.end(), item.key()) != sync.ignored.end();
    if (!is_ignored && item.value().defined()) broadcast(item.value(), collectives, sync.root);
  }
}

void pack(const at::Tensor& gradient, const at::Tensor& place) {
  if (!gradient.defined()) {
    place.zero_();
    return;
  }
  place.copy_(gradient.is_sparse() ? gradient.to_dense() : gradient);
}

void unpack(const at::Tensor& place, at::Tensor& gradient) {
  if (gradient.defined() && !gradient.is_sparse()) {
    gradient.detach().copy_(place);
  } else {
    gradient = place.clone();
  }
}

void average_sparse_parameter(const at::Tensor& parameter, mpi::Collectives& collectives) {
  at::Tensor& gradient = parameter.mutable_grad();
  if (gradient.defined() && !gradient.is_sparse()) gradient = gradient.to_sparse(1);
  average_sparse(parameter, collectives, collectives.world_size());
}

}  // namespace

void manual_sync_parameters(const torch::nn::Module& module, mpi::Collectives& collectives, const ManualSync& sync) {
  require_root(sync.root, collectives);
  if (collectives.world_size() == 1) return;
  if (sync.parameters) broadcast_named(module.named_parameters(), sync, collectives);
  broadcast_named(module.named_buffers(), sync, collectives);
}

void manual_sync_parameters(DistributedDataParallel& wrapper, const ManualSync& sync) {
  require_root(sync.root, wrapper.collectives());
  if (wrapper.collectives().world_size() == 1) return;
  if (sync.parameters) return wrapper.broadcast_state(sync.root);
  const ManualSync buffers = {.root = sync.root, .ignored = wrapper.options().ignored};
  broadcast_named(wrapper.model().named_buffers(), buffers, wrapper.collectives());
}

ManualReducer::ManualReducer(const torch::nn::Module& module, mpi::Collectives& collectives, const BucketLimits& limits)
    : collectives_(&collectives), parameters_(trained_parameters(module)) {
  if (collectives.world_size() == 1) return;
  // The tail says who has which gradient.
  buckets_ = std::make_unique<GradientBuckets>(plan_buckets(specs_of(parameters_), limits), parameters_,
                                               parameters_.size(), collectives);
}

ManualReducer::~ManualReducer() = default;
ManualReducer::ManualReducer(ManualReducer&&) noexcept = default;
ManualReducer& ManualReducer::operator=(ManualReducer&&) noexcept = default;

void ManualReducer::all_reduce() {
  if (!buckets_) return;
  const torch::NoGradGuard no_grad;
  std::vector<double> has_gradient;
  for (const NamedParameter& parameter : parameters_) has_gradient.push_back(parameter.tensor.grad().defined() ? 1 : 0);
  buckets_->write_tail(has_gradient);
  std::vector<mpi::Ticket> tickets;
  for (std::size_t b = 0; b < buckets_->size(); ++b) {
    const Bucket& bucket = buckets_->bucket(b);
    if (bucket.is_sparse) continue;
    for (const Slot& slot : bucket.slots) {
      pack(parameters_[slot.parameter].tensor.grad(), buckets_->view(slot.parameter));
    }
    tickets.push_back(collectives_->start_all_reduce(buckets_->memory(b), buckets_->reduced_count(b), bucket.dtype,
                                                     mpi::ReduceOp::average));
  }
  for (const mpi::Ticket ticket : tickets) collectives_->wait(ticket);
  const std::vector<double> part_with = numbers_in(buckets_->tail());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].tensor;
    if (part_with[i] == 0) continue;
    if (parameters_[i].is_sparse) {
      average_sparse_parameter(parameter, *collectives_);
    } else {
      unpack(buckets_->view(i), parameter.mutable_grad());
    }
  }
}

void manual_gradient_all_reduce(const torch::nn::Module& module, mpi::Collectives& collectives) {
  ManualReducer(module, collectives).all_reduce();
}

}  // namespace lockstep::parallel
