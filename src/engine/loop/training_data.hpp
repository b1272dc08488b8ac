// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/data/source.hpp>
#include <lockstep/engine/run_view.hpp>

#include "engine/settings/builtin_registry.hpp"
#include "engine/setup/resources.hpp"
#include "engine/setup/wrapped_model.hpp"

namespace lockstep::engine {

/// The data of a run: how samples are drawn, loaded and mixed. Limits data.prefetch to the available memory, and logs
/// what the loader takes.
/// @param sections  train, data and loss are read
/// @param registry  what the sampler is chosen from
/// @throws ConfigError, DataError  on every rank
/// Collective.
RunData make_training_data(const Sections& sections, const Resources& resources, const WrappedModel& model,
                           data::Splits splits, const Registry& registry);

}  // namespace lockstep::engine
