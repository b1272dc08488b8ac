// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/parallel/parameter_store.hpp>

#include <functional>
#include <string>

#include "differences.hpp"
#include "held_state.hpp"

// An optimizer in checkpoints: groups /optim/... of checkpoints/FORMAT.md.
namespace lockstep::engine {

/// An optimizer, the parameters that it updates, and where it lies in an archive.
struct OptimizerPlace {
  std::string group;  ///< such as "/optim/0"
  optim::Optimizer* optimizer;
  parallel::ParameterStore* store;
  std::string title = "its optimizer";  ///< in messages
  std::string remedy = "";              ///< a setting with which the run goes on without it
};

/// Visits every state array of which this rank holds anything.
void for_each_state(const OptimizerPlace& place, const std::function<void(const HeldState&)>& visit);

/// Type, options of groups, counts of updates and states. Complete on ranks that write; collective where sharded.
void capture_optimizer(checkpoints::Archive& archive, const OptimizerPlace& place, bool is_writer);

/// What load_optimizer reads whether or not the parameters fit.
void compare_steps(Differences& differences, const checkpoints::Archive& archive, const OptimizerPlace& place);
/// What else does not fit.
void compare_optimizer(Differences& differences, const checkpoints::Archive& archive, const OptimizerPlace& place);

/// Takes what fits; whatever does not was either refused before or is to be passed over. Collective.
void load_optimizer(const checkpoints::Archive& archive, const OptimizerPlace& place);

}  // namespace lockstep::engine
