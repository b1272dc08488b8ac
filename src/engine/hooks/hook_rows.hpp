// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/hook.hpp>

#include <memory>

// The functions that create the rows of builtin_hooks, one file each.
namespace lockstep::engine {

std::unique_ptr<Hook> early_stopping_hook(const Section& options, const HookContext& context);
std::unique_ptr<Hook> precise_bn_hook(const Section& options, const HookContext& context);
std::unique_ptr<Hook> sync_buffers_hook(const Section& options, const HookContext& context);
std::unique_ptr<Hook> freeze_hook(const Section& options, const HookContext& context);
std::unique_ptr<Hook> memory_hook(const Section& options, const HookContext& context);
std::unique_ptr<Hook> profiler_hook(const Section& options, const HookContext& context);
std::unique_ptr<Hook> parameter_statistics_hook(const Section& options, const HookContext& context);
std::unique_ptr<Hook> nan_output_hook(const Section& options, const HookContext& context);
std::unique_ptr<Hook> run_time_hook(const Section& options, const HookContext& context);

}  // namespace lockstep::engine
