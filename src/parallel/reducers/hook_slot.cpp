// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/reducers/hook_slot.hpp"

#include <lockstep/core/error.hpp>

#include <string>
#include <utility>

namespace lockstep::parallel {

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

}  // namespace lockstep::parallel
