// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/mpi/communicator.hpp>

namespace lockstep::engine {

/// The task of the training data. If `model.standardize` is true and the data set does not provide the moments of its
/// inputs, they are computed from all samples; a MeasuredDataset measures all its values. The result has the same bits
/// on any number of ranks.
/// @param statistics_json  receives the numbers of a MeasuredDataset for the run; null = they are not wanted
/// @throws DataError  on every rank: a sample cannot be read
/// Collective.
Task training_task(const mpi::Communicator& world, const Section& model, const data::Dataset& train,
                   std::string* statistics_json = nullptr);

/// The numbers of a MeasuredDataset for the run, if its cache keeps them. "" = they are not measured yet. Not
/// collective.
std::string kept_statistics(const data::Dataset& train);

}  // namespace lockstep::engine
