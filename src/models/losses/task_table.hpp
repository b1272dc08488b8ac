// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/models/loss.hpp>
#include <lockstep/models/model.hpp>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::models {

/// The defaults of a kind of task, which the model and the configuration can override.
struct TaskRow {
  TaskKind kind;
  std::string name;
  LossMap (*losses)(const at::Tensor& output, const at::Tensor& target);  ///< null = the model must say it
  Predictions (*predict)(const at::Tensor& output);                       ///< null = the same
  /// The targets that count in `losses`; null = all do.
  double (*count)(const at::Tensor& target) = nullptr;
  bool has_accuracy = false;             ///< each target is a class, and evaluations report the accuracy
  bool has_perplexity = false;           ///< the loss is a cross-entropy, and evaluations report its exponential
  std::vector<std::string> meters = {};  ///< used in evaluations if eval.metrics names none
  std::string metric = "";               ///< reported by evaluations in addition to the loss; "" = none
  std::string best_metric = "val/loss";  ///< ckpt.metric=auto
};

/// The row of a kind; every kind has one.
const TaskRow& row_of(TaskKind kind);

/// The metrics that a kind of task reports in addition to the loss.
std::vector<std::string> reported_metrics();

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
