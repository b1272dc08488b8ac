// SPDX-License-Identifier: BSD-3-Clause
// Where models meet parameter groups.
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/models/model.hpp>

#include <string>
#include <vector>

#include "optim/groups/param_groups.hpp"

namespace lockstep::engine {

std::vector<optim::ParameterInfo> describe_parameters(const models::Model& model);

/// The groups of a run before its first step.
struct GroupPlan {
  std::vector<optim::ParamGroup> groups;  ///< learning rates scaled where optim.auto_scale_lr says so
  std::vector<std::string> remarks;       ///< remarks for the log
  std::vector<std::string> unmatched;     ///< see optim::ParameterGroups
  std::string scaling;                    ///< "effective batch 96, optim.base_batch_size 48: lr 0.1 -> 0.2", or ""
};

/// @param optim  section optim, of all parameters or of a part of them
/// @throws ConfigError  see optim::ParamGroupBuilder and optim::lr_scale
/// Not collective; the same on every rank.
GroupPlan plan_groups(const Section& optim, const Section& train, const optim::Rule& rule,
                      const std::vector<optim::ParameterInfo>& parameters, int world_size);

}  // namespace lockstep::engine
