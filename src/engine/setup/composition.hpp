// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "engine/settings/builtin_registry.hpp"
#include "engine/setup/optimizer.hpp"
#include "engine/setup/precision.hpp"
#include "engine/setup/resources.hpp"
#include "engine/setup/strategy.hpp"
#include "optim/averages/model_average.hpp"

namespace lockstep::engine {

/// The division of a global batch among the ranks. Not collective.
/// @throws ConfigError  see layout_of
BatchLayout training_layout(const Sections& sections, const mpi::Communicator& world);

/// A model with its loss on the device of this rank, and how it is laid out over the ranks.
struct WrappedModel {
  Precision precision;
  ParamDtypeSettings param_dtype;
  PartPlans plans;                   ///< how its parameters are updated; empty unless it is trained
  std::string comm_hook = "none";    ///< name of the communication hook of gradients
  std::int64_t parameter_count = 0;  ///< elements of all parameters, before any division among ranks
  /// The averages of post-local SGD (strategy.post_local); null = none.
  std::unique_ptr<PostLocal> post_local = nullptr;
  /// The wrapper, which holds the model and the parameter store.
  std::unique_ptr<parallel::DistributedDataParallel> wrapper = nullptr;

  /// Type of matrix products in forward passes.
  at::ScalarType products() const { return precision.autocast.value_or(precision.parameters); }
};

/// How a model is made, in addition to the configuration.
struct ModelRequest {
  Purpose purpose = Purpose::training;
  bool is_loaded = false;  ///< the caller gives every parameter a value: no initial values are drawn or copied
  std::shared_ptr<models::Model> given = nullptr;  ///< instead of model.name, with initial values
};

/// Builds the model, gives all ranks its values, and wraps it. A model that is not trained has neither lanes nor
/// communication hooks nor frozen parameters; one that only predicts has the loss of its task, and each rank holds all
/// of it.
///
/// @param resources  outlives the model
/// @param sections   model, loss, finetune, train, optim, ddp, comm, strategy and ema are read
/// @param registry   what models, losses, hooks and optimizers are chosen from; outlives the model
/// @param task       what the data set requests
/// @throws ConfigError  from any part, on every rank
/// Collective.
WrappedModel make_wrapped_model(const Resources& resources, const Sections& sections, const Registry& registry,
                                const Task& task, const ModelRequest& request = {});

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
