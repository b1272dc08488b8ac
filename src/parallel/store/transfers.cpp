// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/store/transfers.hpp"

#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include <exception>

#include "batch/collate.hpp"

namespace lockstep::parallel {

namespace {

c10::Stream current_stream(at::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

}  // namespace

Transfers::Transfers(at::Device device, std::size_t count) : device_(device), ends_(count) {
  if (device_.is_cpu()) return;
  stream_ = c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_);
  begun_.emplace(device_.type());
}

Transfers::~Transfers() {
  try {
    for (std::size_t i = 0; i < ends_.size(); ++i) follow(i);
  } catch (const std::exception&) {  // the device has failed: nothing runs on it any more
  }
}

void Transfers::start(std::size_t number, const at::Tensor& target, const at::Tensor& from) {
  const torch::NoGradGuard no_grad;
  if (!stream_) {
    target.copy_(from);
    return;
  }
  begun_->record(current_stream(device_));
  begun_->block(*stream_);
  {
    const c10::StreamGuard on_stream(*stream_);
    target.copy_(from, /*non_blocking=*/true);
  }
  if (!ends_.at(number)) ends_[number].emplace(device_.type());
  ends_[number]->record(*stream_);
}

void Transfers::follow(std::size_t number) const {
  if (ends_.at(number)) ends_[number]->block(current_stream(device_));
}

void Transfers::await(std::size_t number) const {
  if (ends_.at(number)) ends_[number]->synchronize();
}

at::Tensor page_locked(std::int64_t count, at::ScalarType type) {
  return at::empty({count}, at::TensorOptions().dtype(type).pinned_memory(true));
}

void HostCopies::start(std::size_t number, std::int64_t first, const at::Tensor& from) {
  transfers_.start(number, memory_.at(number).narrow(0, first, from.numel()), from);
}

const at::Tensor& HostCopies::get(std::size_t number) const {
  transfers_.await(number);
  return memory_.at(number);
}

void HostCopies::forget(std::size_t number) {
  is_started_.at(number) = 0;
  transfers_.follow(number);
}

BatchCopies::BatchCopies(const at::Device& device) : device_(device) {
  if (device.is_cpu()) return;
  stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  copied_.emplace(device.type());
}

batch::Batch BatchCopies::copy(const batch::Batch& batch) {
  const c10::NoGradGuard no_grad;
  if (!stream_) return batch::scatter(batch.share(), device_);
  batch::Batch copies;
  {
    const c10::StreamGuard guard(*stream_);
    copies = batch::scatter(batch.share(), device_);
    copied_->record(*stream_);
  }
  const c10::Stream current = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  copied_->block(current);
  batch::record_stream(copies, current);
  return copies;
}

}  // namespace lockstep::parallel
