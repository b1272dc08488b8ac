// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <string>

#include "engine/measures/evaluation.hpp"

namespace lockstep::engine {

/// Writes the predictions of the model for each sample of a data set, in order: one JSON object a line, such as
/// {"index": 3, "classes": 7}. It contains the predictions and the other values of the samples (file names, sizes).
/// Each rank runs its share of the batches; targets are not needed.
/// @return  the lines on rank 0, nothing elsewhere
/// @throws DataError  on every rank: a prediction has no row for each sample
/// Collective. The model is in evaluation mode meanwhile.
std::string predictions_of(const mpi::Communicator& world, parallel::DistributedDataParallel& wrapper,
                           const data::Dataset& dataset, const EvaluationLimits& limits);

}  // namespace lockstep::engine
