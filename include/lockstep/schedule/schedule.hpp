// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/key_spec.hpp>
#include <lockstep/core/section.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::schedule {

/// The factor on every group's base lr at an optimizer step (counted from 0): a pure function, so a resumed run needs
/// the step and nothing else.
using Schedule = std::function<double(std::int64_t step)>;

/// The steps [begin, end) in which a curve moves. Before `begin` a curve gives 1, from `end` on its last value
/// (constant: 1 again). Options that count steps, such as milestones, count from `begin`.
struct Window {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// A row of the table of curves. A user's program adds rows.
struct Curve {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< of the rule's own options, named without a section, beside begin and end
  /// @throws ConfigError  options that do not fit together; `parse` puts rule and origin before the message
  Schedule (*make)(const Section& rule, Window window);
};

/// constant, linear, step, multistep, cosine.
const std::vector<Curve>& builtin_curves();

/// The product of the curves that the `rules` describe, each written like "cosine,begin=100,final_factor=0.1". Within a
/// rule, lists are separated by slashes: "multistep,milestones=30/60".
///
/// @param rules        what `sched.rule` holds; empty: factor 1 throughout
/// @param total_steps  optimizer steps of the whole run: the default of a rule's `end`
/// @param origin       where the rules came from, for messages
/// @throws ConfigError  unknown curve, unknown option or value out of range, citing rule and origin
Schedule parse(const std::vector<std::string>& rules, std::int64_t total_steps, const std::string& origin,
               const std::vector<Curve>& curves = builtin_curves());

/// The keys of section `sched`.
KeySpecs sched_keys();

}  // namespace lockstep::schedule
