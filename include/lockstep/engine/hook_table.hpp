// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/key_spec.hpp>
#include <lockstep/core/section.hpp>
#include <lockstep/engine/hook.hpp>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// The hooks that a configuration chooses from, by `train.hooks`. What every run has (schedule, evaluation, log,
// checkpoints, ...) is in hooks.hpp and has keys of its own. There is none that tells samplers the epoch: a sampler is
// a pure function of epoch and step, so nothing is to be set.
namespace lockstep::engine {

/// What a hook of the table is made from, beside its options.
struct HookContext {
  const Sections& run;  ///< its whole configuration; outlives the hook
  std::string name;     ///< among the run's hooks: the row's, "early_stopping#2" for the second one. For state_name
};

/// A row of the table of hooks. A user's program adds rows to Tables::hooks.
struct HookRow {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< of its options
  Priority priority = Priority::normal;
  /// Not collective. @throws ConfigError  options that do not fit each other
  std::function<std::unique_ptr<Hook>(const Section& options, const HookContext& context)> make;
};

/// early_stopping, precise_bn, sync_buffers, freeze, memory, profiler, parameter_statistics, nan_output, run_time.
const std::vector<HookRow>& builtin_hooks();

/// The hooks that `train.hooks` names ("early_stopping,metric=val/accuracy,patience=3"), in its order, at the priority
/// of their rows or of an option `priority` ("low", or 0 to 100).
/// @throws ConfigError  an unknown row or option, with the nearest known ones, or what a row refuses
/// Not collective.
std::vector<std::pair<Priority, std::unique_ptr<Hook>>> make_hooks(const Sections& run,
                                                                   const std::vector<HookRow>& rows = builtin_hooks());

/// "highest", ..., "lowest", in any case, or a number in [0, 100].
/// @throws ConfigError  neither; begins with `place`
Priority priority_of(const std::string& text, const std::string& place);

/// The key `train.hooks`, which describes the rows.
KeySpec hooks_key(const std::vector<HookRow>& rows);

}  // namespace lockstep::engine
