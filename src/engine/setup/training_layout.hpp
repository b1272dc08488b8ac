// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/mpi/communicator.hpp>

#include "engine/settings/builtin_registry.hpp"
#include "engine/setup/resources.hpp"

// The rules for settings of training that concern several objects of a run.
namespace lockstep::engine {

/// The division of a global batch among the ranks. Not collective.
/// @throws ConfigError  see layout_of
BatchLayout training_layout(const Sections& sections, const mpi::Communicator& world);

/// Refuses what cannot be combined: lanes, parts, 16-bit parameters and post-local SGD exclude some settings. Not
/// collective; the same on every rank.
/// @throws ConfigError  with the settings
void require_training_settings(const Sections& sections, const Registry& registry, const Resources& resources);

}  // namespace lockstep::engine
