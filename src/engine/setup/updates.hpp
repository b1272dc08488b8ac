// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <memory>
#include <utility>

#include "engine/settings/builtin_registry.hpp"
#include "engine/setup/resources.hpp"
#include "engine/setup/wrapped_model.hpp"
#include "optim/averages/model_average.hpp"

namespace lockstep::engine {

/// The parts of a run that change the parameters of a model in training.
struct Updates {
  /// The optimizers, with their loss scaling, by the names of their parts; without parts, one that is named "".
  optim::OptimWrapperDict parts;
  bool has_parts = false;
  std::unique_ptr<optim::ModelAverage> average;  ///< average of the weights (section `ema`); null = none
  ScheduleControl schedule;                      ///< of learning rates and other options

  /// The optimizer of the first part.
  optim::OptimWrapper& first() noexcept { return parts.begin()->second; }
  /// The only optimizer, or all together.
  optim::BaseOptimWrapper& all() noexcept;
};

/// Builds the optimizers for what the wrapper holds.
///
/// @param model     made for training; outlives the updates
/// @param sections  train, ddp, optim, sched and ema are read
/// @param registry  what averages and curves are chosen from; outlives the updates
/// @throws ConfigError  from any part, on every rank
/// Collective.
Updates make_updates(const Resources& resources, const WrappedModel& model, const Sections& sections,
                     const Registry& registry);

/// The objects of a training, each built for those before it.
struct Composition {
  /// The parameters are those of make_wrapped_model and make_updates. Collective.
  Composition(Resources made, const Sections& sections, const Registry& registry, const Task& task,
              const ModelRequest& request = {})
      : resources(std::move(made)),
        model(make_wrapped_model(resources, sections, registry, task, request)),
        updates(make_updates(resources, model, sections, registry)) {}

  Resources resources;
  WrappedModel model;
  Updates updates;
};

}  // namespace lockstep::engine
