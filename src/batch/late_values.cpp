// SPDX-License-Identifier: BSD-3-Clause
#include "batch/late_values.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace lockstep::batch {

void LateValues::queue(const at::Tensor& values) {
  const at::Tensor source = values.detach();
  const bool is_on_host = source.is_cpu();
  if (!host_.defined() || host_.sizes() != source.sizes() || host_.scalar_type() != source.scalar_type()) {
    host_ = at::empty(source.sizes(), source.options().device(at::kCPU).pinned_memory(!is_on_host));
  }
  host_.copy_(source, /*non_blocking=*/true);
  are_pending_ = true;
  if (is_on_host) return;
  if (!copied_) copied_.emplace(source.device().type());
  copied_->record(c10::impl::VirtualGuardImpl(source.device().type()).getStream(source.device()));
}

at::Tensor LateValues::take() {
  if (copied_ && are_pending_) copied_->synchronize();
  are_pending_ = false;
  return host_;
}

std::shared_ptr<LateValues> LatePlaces::queue(const at::Tensor& values) {
  const auto is_free = [](const std::shared_ptr<LateValues>& place) { return place.use_count() == 1; };
  auto found = std::find_if(places_.begin(), places_.end(), is_free);
  if (found == places_.end()) found = places_.insert(found, std::make_shared<LateValues>());
  (*found)->queue(values);
  return *found;
}

}  // namespace lockstep::batch
