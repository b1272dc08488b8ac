// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/hook.hpp>

#include <cstdint>
#include <functional>
#include <memory>

// The functions that create the rows of builtin_hooks, one file each.
namespace lockstep::engine {

std::unique_ptr<Hook> early_stopping_hook(const Section& options, const HookContext& context);
std::unique_ptr<Hook> precise_bn_hook(const Section& options, const HookContext& context);
std::unique_ptr<Hook> sync_buffers_hook(const Section& options, const HookContext& context);
std::unique_ptr<Hook> memory_hook(const Section& options, const HookContext& context);
std::unique_ptr<Hook> profiler_hook(const Section& options, const HookContext& context);
std::unique_ptr<Hook> parameter_statistics_hook(const Section& options, const HookContext& context);
std::unique_ptr<Hook> nan_output_hook(const Section& options, const HookContext& context);
std::unique_ptr<Hook> empty_cache_hook(const Section& options, const HookContext& context);
std::unique_ptr<Hook> run_time_hook(const Section& options, const HookContext& context);

/// When the memory that LibTorch keeps for reuse is returned to the GPU.
struct EmptyCacheTimes {
  std::int64_t interval = 0;  ///< steps; 0 = not after steps
  bool is_after_epochs = true;
  bool is_after_evaluations = true;
};

std::unique_ptr<Hook> empty_cache_hook_at(const EmptyCacheTimes& times, std::function<void(RunView&)> empty);

}  // namespace lockstep::engine
