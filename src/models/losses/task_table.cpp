// SPDX-License-Identifier: BSD-3-Clause
#include "models/losses/task_table.hpp"

#include <torch/types.h>

#include <algorithm>
#include <stdexcept>

#include "models/losses/loss_rows.hpp"

namespace lockstep::models {

namespace {

LossMap class_losses(const at::Tensor& output, const at::Tensor& target) {
  return {{"loss", target.is_floating_point() ? soft_cross_entropy(output, target) : cross_entropy(output, target)}};
}

/// @param output  [N, C, H, W] scores
/// @param target  [N, H, W]
LossMap pixel_losses(const at::Tensor& output, const at::Tensor& target) {
  return {{"loss", at::cross_entropy_loss(output, target)}};
}

/// @param output  [N, C] scores
/// @param target  [N, C] of 0 and 1
LossMap label_losses(const at::Tensor& output, const at::Tensor& target) {
  return {{"loss", at::binary_cross_entropy_with_logits(output, target.to(output.scalar_type()))}};
}

LossMap distance_losses(const at::Tensor& output, const at::Tensor& target) {
  return {{"loss", at::mse_loss(output, target.to(output.scalar_type()).view_as(output))}};
}

/// Targets that are probabilities all count.
double count_classes(const at::Tensor& target) {
  return target.is_floating_point() ? static_cast<double>(target.numel()) : counted_targets(target);
}

Predictions best_classes(const at::Tensor& output) { return {{"classes", output.argmax(-1)}}; }
Predictions best_pixels(const at::Tensor& output) { return {{"masks", output.argmax(1)}}; }
Predictions likely_labels(const at::Tensor& output) { return {{"labels", output.gt(0)}}; }
Predictions same_values(const at::Tensor& output) { return {{"values", output}}; }

const std::vector<TaskRow>& all_rows() {
  static const std::vector<TaskRow> rows = {
      {.kind = TaskKind::classification,
       .name = "classification",
       .losses = class_losses,
       .predict = best_classes,
       .count = count_classes,
       .has_accuracy = true,
       .metric = "accuracy"},
      {.kind = TaskKind::multilabel,
       .name = "multi-label",
       .losses = label_losses,
       .predict = likely_labels,
       .meters = {"multilabel,threshold=0"},
       .metric = "label_f1",
       .best_metric = "val/label_f1"},
      {.kind = TaskKind::regression,
       .name = "regression",
       .losses = distance_losses,
       .predict = same_values,
       .meters = {"regression"},
       .metric = "rmse"},
      {.kind = TaskKind::segmentation,
       .name = "segmentation",
       .losses = pixel_losses,
       .predict = best_pixels,
       .count = count_classes,
       .meters = {"overlap"},
       .metric = "miou",
       .best_metric = "val/miou"},
      {.kind = TaskKind::language,
       .name = "language model",
       .losses = class_losses,
       .predict = best_classes,
       .count = count_classes,
       .has_accuracy = true,
       .has_perplexity = true,
       .metric = "perplexity"},
      {.kind = TaskKind::custom, .name = "custom", .losses = nullptr, .predict = nullptr},
  };
  return rows;
}

}  // namespace

const TaskRow& row_of(TaskKind kind) {
  const std::vector<TaskRow>& rows = all_rows();
  const auto found = std::find_if(rows.begin(), rows.end(), [kind](const TaskRow& row) { return row.kind == kind; });
  if (found == rows.end()) throw std::logic_error("the kind of the task is unknown");
  return *found;
}

std::vector<std::string> reported_metrics() {
  std::vector<std::string> metrics;
  for (const TaskRow& row : all_rows()) {
    if (!row.metric.empty()) metrics.push_back(row.metric);
  }
  return metrics;
}

}  // namespace lockstep::models
