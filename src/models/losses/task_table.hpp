// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/task.hpp>
#include <lockstep/models/model.hpp>

#include <string>
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
  std::string best_metric = "val/loss";  ///< ckpt.best_metric=auto
};

/// The row of a kind; every kind has one.
const TaskRow& row_of(TaskKind kind);

/// The metrics that a kind of task reports in addition to the loss.
std::vector<std::string> reported_metrics();

}  // namespace lockstep::models
