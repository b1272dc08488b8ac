// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/hook.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/text/every.hpp"

// The rows of builtin_hooks.
namespace lockstep::engine {

/// The option `every` of a hook: the steps or epochs between two actions.
/// @param actions  what is repeated, for help
KeySpec every_key(const std::string& default_value, const std::string& actions);
/// The same as the new name of an option of earlier versions with a number of steps.
KeySpec renamed_every_key(const std::string& default_value, const std::string& actions, const std::string& old_name);
/// The value of this option.
/// @throws ConfigError  it is malformed, or a time
Every every_of(const Section& options);

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
  Every every = Every({.epochs = 1});
  bool is_after_evaluations = true;
};

std::unique_ptr<Hook> empty_cache_hook_at(const EmptyCacheTimes& times, std::function<void(RunView&)> empty);

}  // namespace lockstep::engine
