// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/models/loss.hpp>
#include <lockstep/models/model.hpp>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::models {

/// The counts of a batch: that of Loss::count of Model::set_loss under the name "loss", or Model::counts.
std::vector<std::pair<std::string, double>> counts_of(const Model& model, const batch::Batch& batch);

/// Whether default losses, if the model has them, count targets: it has no other loss, and targets can be ignored.
bool counts_by_task(const Model& model);
/// The integer targets that the losses of the model accept.
/// @param task  of the data
ClassRange target_classes(const Model& model, const Task& task);
/// The targets of the batch that count in the default losses, and all of its targets; 0 and 0 = it has no such targets.
struct TargetCount {
  double counted = 0;
  double all = 0;
};
TargetCount count_targets(const Model& model, const batch::Batch& batch);

}  // namespace lockstep::models
