// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "core/keys/cited.hpp"
#include "engine/setup/precision.hpp"

// The optimizer of a run, before its first step.
namespace lockstep::engine {

struct ClipSettings {
  Cited<std::string> clip_grad = {""};  ///< "norm:V", "value:V", ...; empty = off
  bool is_by_group = false;

  /// Keys clip_grad and clip_scope of section `train`.
  static KeySpecs keys();
  static ClipSettings from(const Section& train);
  bool operator==(const ClipSettings&) const = default;
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

}  // namespace lockstep::engine
