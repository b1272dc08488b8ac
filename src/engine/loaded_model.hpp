// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/data/source.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/setup/composition.hpp"
#include "engine/setup/resources.hpp"

namespace lockstep::engine {

/// The data and the model of an evaluation or prediction, with trained weights.
struct LoadedModel {
  data::Splits splits;  ///< splits with the transforms of evaluation
  Resources resources;
  WrappedModel model;
  Task task;                ///< task of the model: its classes are those of the training, its shapes those of the data
  std::int64_t step = 0;    ///< step of the checkpoint
  bool is_average = false;  ///< averaged weights, see eval.weights
  std::string source;       ///< file or folder of the weights
};

/// Opens the data and builds the model with the weights of a checkpoint, or those of init.from. Collective.
/// @param checkpoint  folder; empty = init.from
/// @param purpose     evaluation or prediction
/// @param split       the split that is used, in addition to the classes of the training split; empty = eval.split
/// @throws ConfigError  neither of them is given; on every rank, as all other errors
/// @throws DataError    the data have other classes than the model
LoadedModel load_model(const mpi::Communicator& world, const Sections& sections, const Registry& registry,
                       const std::string& checkpoint, Purpose purpose = Purpose::evaluation,
                       const std::string& split = "");

struct Evaluation {
  std::int64_t step = 0;
  /// Losses and what the kind of the task adds, by name without "val/".
  std::vector<std::pair<std::string, double>> values = {};
  std::int64_t count = 0;                                    ///< predictions that were counted
  std::vector<std::pair<std::string, double>> numbers = {};  ///< results of the meters, by name
  bool is_average = false;                                   ///< whether averaged weights are meant, see eval.weights
};

/// Evaluates it on the part of the data that eval.split names. Collective; the same result on every rank.
Evaluation evaluate_loaded(LoadedModel& loaded, const Sections& sections, const Registry& registry);

}  // namespace lockstep::engine
