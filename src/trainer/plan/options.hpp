// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <optional>
#include <string>

#include "engine/job_plan.hpp"
#include "trainer/plan/prediction.hpp"

namespace lockstep::trainer {

using CommandOptions = std::map<std::string, std::string>;

/// The number that an option of a command states.
/// @throws ConfigError  it is not a number in this range
double number_in(const CommandOptions& options, const std::string& name, double fallback, double min, double max);

/// --ranks and --hosts. By default, those of this job; with --ranks alone, as many ranks per host as this job has.
/// @throws ConfigError  not whole numbers, or more hosts than ranks
engine::JobShape shape_in(const CommandOptions& options, const engine::JobShape& here);

/// --link-gbit and --latency-us.
LinkSpeed link_in(const CommandOptions& options);

/// --mtbf-hours, --save-s and --restart-s. None = --mtbf-hours is not given.
/// @param save_s  predicted; none = unknown
/// @throws ConfigError  the time of a save is unknown, or an option has no effect
std::optional<FailureSettings> failures_in(const CommandOptions& options, std::optional<double> save_s);

}  // namespace lockstep::trainer
