// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/schedule/schedule.hpp>

#include <string>
#include <vector>

namespace lockstep::schedule {

/// The keys of section `sched` that describe a usual schedule: a warm-up, and one curve after it.
KeySpecs named_keys();

/// The rules of section `sched`: those of sched.rule, or those that sched.name and its keys stand for, such as
/// "linear,start_factor=0.01,end=100" and "cosine,begin=100,final_factor=0" for sched.name=cosine and sched.warmup=100.
/// @throws ConfigError  both sched.name and sched.rule are set, sched.name=step has no milestones, or a length is
///                      neither a number of steps nor of epochs
std::vector<std::string> rules_of(const Section& sched);

/// The origin of these rules, for messages.
std::string origin_of_rules(const Section& sched);

/// Checks the names and options of rules, for which the length of the run need not be known.
/// @throws ConfigError  as parse() does
void check_rules(const std::vector<std::string>& rules, const std::string& origin, const std::vector<Curve>& curves);

}  // namespace lockstep::schedule
