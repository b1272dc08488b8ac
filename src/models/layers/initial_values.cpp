// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/initial_values.hpp"

#include <torch/types.h>

namespace lockstep::models {

namespace {

thread_local int pending = 0;

}  // namespace

PendingValues::PendingValues() noexcept { ++pending; }
PendingValues::~PendingValues() { --pending; }
bool PendingValues::are_pending() noexcept { return pending > 0; }

void draw_normal(at::Tensor values, double mean, double deviation) {
  const torch::NoGradGuard no_grad;
  if (!PendingValues::are_pending()) values.normal_(mean, deviation);
}

void draw_uniform(at::Tensor values, double from, double target) {
  const torch::NoGradGuard no_grad;
  if (!PendingValues::are_pending()) values.uniform_(from, target);
}

at::Tensor with_channels_last(const at::Tensor& values) {
  if (!PendingValues::are_pending()) return values.contiguous(at::MemoryFormat::ChannelsLast);
  return torch::empty(values.sizes(), values.options().memory_format(at::MemoryFormat::ChannelsLast));
}

}  // namespace lockstep::models
