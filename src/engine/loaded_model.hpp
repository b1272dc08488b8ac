// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <cstdint>
#include <memory>
#include <string>

#include "engine/session.hpp"
#include "engine/setup/strategy.hpp"

namespace lockstep::engine {

/// The data and the model of an evaluation, with trained weights.
struct LoadedModel {
  data::Splits splits;  ///< splits with the transforms of evaluation
  std::unique_ptr<Strategy> strategy;
  Task task;                ///< task of the model: its classes are those of the training, its shapes those of the data
  std::int64_t step = 0;    ///< step of the checkpoint
  bool is_average = false;  ///< averaged weights, see eval.weights
  std::string source;       ///< file or folder of the weights
};

/// Opens the data and builds the model with the weights of a checkpoint, or those of init.from. Collective.
/// @param checkpoint  folder; empty = init.from
/// @param split       the split that is used, in addition to the classes of the training split; empty = eval.split
/// @throws ConfigError  neither of them is given; on every rank, as all other errors
/// @throws DataError    the data have other classes than the model
LoadedModel load_model(const mpi::Communicator& world, const Sections& sections, const Registry& registry,
                       const std::string& checkpoint, const std::string& split = "");

/// The configuration of a model that only predicts: without sharding, lanes, loss, optimizer and averages, which do not
/// affect its outputs.
/// @param world_size  number of ranks
Sections without_training(Sections sections, const Registry& registry, int world_size);

/// Evaluates it on the part of the data that eval.split names. Collective; the same result on every rank.
Evaluation evaluate_loaded(const mpi::Communicator& world, LoadedModel& loaded, const Sections& sections,
                           const Registry& registry);

}  // namespace lockstep::engine
