// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <cstdint>
#include <string>

#include "engine/evaluation/evaluation.hpp"
#include "engine/loaded_model.hpp"
#include "trainer/predict/settings.hpp"

namespace lockstep::trainer {

/// Checks the settings and that the files can be written. Collective.
/// @throws ConfigError  on every rank
void require_writable(const mpi::Communicator& world, const PredictSettings& settings);

/// Writes the predictions of a model for every sample of a data set, in the order of the data set. The files appear
/// when all of them are complete. Memory does not grow with the data. Collective.
/// @return  the number of samples
std::int64_t write_predictions(const mpi::Communicator& world, engine::LoadedModel& loaded,
                               const data::Dataset& dataset, const engine::EvaluationLimits& limits,
                               const PredictSettings& settings);

/// "averaged weights of step 40 from runs/a/ckpt/step-000000000040", for messages.
std::string weights_text(const engine::LoadedModel& loaded);

}  // namespace lockstep::trainer
