// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/engine/stateful.hpp>

#include <optional>
#include <string>
#include <vector>

#include "engine/resume/components.hpp"
#include "engine/state/resume_settings.hpp"

// The parts of an optimizer's state that capturing, comparing and restoring have in common.
namespace lockstep::engine {

/// The path of one state array of one parameter.
std::string state_path(const OptimizerContext& place, std::size_t block, std::size_t segment, std::size_t slot);

/// The shape, strides and type of a state array, as a meta tensor.
at::Tensor meta_tensor_of(const optim::StateArray& state);

/// The part of one state array of one parameter on this rank; nullopt = none.
std::optional<LocalState> local_state(const OptimizerContext& place, std::size_t block, std::size_t segment,
                                      std::size_t slot);

/// The numbers in the store of the parameters, in the model's order.
std::vector<std::size_t> parameters_of(const OptimizerContext& place);
/// The names of the parameters, one per line, in the model's order.
std::string parameter_names(const OptimizerContext& place);

/// Whether the archive has every number that the rule remembers, with a possible value.
bool has_numbers(const checkpoints::Archive& archive, const OptimizerContext& place);

/// Calls visit(block, segment) for every parameter.
template <class Visit>
void for_each_segment(const OptimizerContext& place, const Visit& visit) {
  const auto blocks = place.part == nullptr ? place.store->blocks() : place.part->blocks();
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    for (std::size_t s = 0; s < blocks[b].segments.size(); ++s) visit(b, s);
  }
}

/// Adds what does not fit the run.
void compare_optimizer(const OptimizerContext& place, const checkpoints::Archive& archive,
                       const RestoreOptions& options, CompatibilityReport& report);

}  // namespace lockstep::engine
