// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <cstdint>
#include <memory>
#include <string>

#include "engine/settings/builtin_registry.hpp"
#include "engine/setup/param_dtype.hpp"
#include "engine/setup/parts.hpp"
#include "engine/setup/post_local.hpp"
#include "engine/setup/precision.hpp"
#include "engine/setup/resources.hpp"

namespace lockstep::engine {

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

}  // namespace lockstep::engine
