// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/hook.hpp>

#include <cstdint>
#include <functional>
#include <memory>

// The rows of builtin_hooks.
namespace lockstep::engine {

HookRow early_stopping_row();
HookRow precise_bn_row();
HookRow sync_buffers_row();
HookRow memory_row();
HookRow profiler_row();
HookRow parameter_statistics_row();
HookRow nan_output_row();
HookRow empty_cache_row();
HookRow run_time_row();

/// When the memory that LibTorch keeps for reuse is returned to the GPU.
struct EmptyCacheTimes {
  std::int64_t interval = 0;  ///< steps; 0 = not after steps
  bool is_after_epochs = true;
  bool is_after_evaluations = true;
};

std::unique_ptr<Hook> empty_cache_hook_at(const EmptyCacheTimes& times, std::function<void(RunView&)> empty);

}  // namespace lockstep::engine
