// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/optim/rule.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/keys/cited.hpp"
#include "engine/setup/precision.hpp"
#include "optim/groups/param_groups.hpp"

// The optimizer of a run before its first step, and the parts of the parameters that have optimizers of their own
// (optim.part, strategy.separate).
namespace lockstep::engine {

struct Registry;

struct ClipSettings {
  optim::Clip clip = {};
  std::string cite = {};  ///< the key that turns clipping on, for messages

  /// Keys clip_norm, clip_norm_type, clip_scope and clip_value of section `train`.
  static KeySpecs keys();
  /// @throws ConfigError  both clip_norm and clip_value, or clip_norm_type is not a number above 0
  static ClipSettings from(const Section& train);
};

/// The row that optim.name names.
/// @throws ConfigError  an unknown name, with the nearest known one
const optim::Rule& chosen_rule(const Section& optim, const std::vector<optim::Rule>& rules);

/// The options of the optimizer's wrapper.
/// @param sections       train, ddp and optim are read
/// @param micro_batches  forwards of this rank in a step
/// @throws ConfigError  what the rule cannot do
optim::OptimWrapper::WrapperOptions update_options(const Sections& sections, const Precision& precision,
                                                   std::int64_t micro_batches, const optim::Rule& rule);

std::vector<optim::ParameterInfo> describe_parameters(const models::Model& model);

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
  std::vector<std::string> scalings;           ///< "effective batch 96, optim.base_batch_size 48: lr 0.1 -> 0.2"

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
///                      optim::ParamGroupBuilder and optim::lr_scale
PartPlans plan_parts(const Sections& sections, const Registry& registry, const models::Model& model, int world_size);

}  // namespace lockstep::engine
