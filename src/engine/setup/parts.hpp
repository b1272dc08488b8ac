// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/optim/rule.hpp>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "engine/setup/param_groups.hpp"

// The parts of the parameters that have optimizers of their own (optim.part, strategy.separate).
namespace lockstep::engine {

struct Registry;

/// One optimizer of a run before its first step.
struct PartPlan {
  std::string name;  ///< "" = all parameters belong to it
  const optim::Rule* rule = nullptr;
  std::vector<optim::ParamGroup> groups;
};

struct PartPlans {
  std::vector<PartPlan> parts;                 ///< sorted by name; a single one if there are no parts
  std::map<std::string, std::size_t> numbers;  ///< part of each trained parameter, by name; empty without parts
  std::vector<std::string> remarks;            ///< logged as warnings
  std::vector<std::string> scalings;           ///< see GroupPlan::scaling

  bool has_parts() const noexcept { return !numbers.empty(); }
};

/// Whether the gradients of each part are reduced on their own: the configuration or the training step says so.
bool separates_parts(const Sections& sections, const Registry& registry);

/// Refuses what does not work with parts. Not collective.
/// @throws ConfigError  with the setting that excludes parts
void require_parts(const Sections& sections, const Registry& registry);

/// Assigns every trained parameter to a part. Not collective; the same on every rank.
/// @param sections  optim, strategy and train are read
/// @throws ConfigError  a parameter belongs to no part or to two; the training step updates other parts; see also
///                      plan_groups
PartPlans plan_parts(const Sections& sections, const Registry& registry, const models::Model& model, int world_size);

}  // namespace lockstep::engine
