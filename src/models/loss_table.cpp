// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/loss.hpp>
#include <lockstep/models/model.hpp>

#include <torch/types.h>

#include <algorithm>

#include "core/table.hpp"
#include "core/text.hpp"
#include "models/task_table.hpp"

namespace lockstep::models {

namespace {

constexpr std::int64_t kIgnoredClass = -100;  // data::kIgnored

/// Sums over classes lose digits in 16 bits.
at::Tensor in_float32(const at::Tensor& output) {
  const bool is_half = output.scalar_type() == at::kHalf || output.scalar_type() == at::kBFloat16;
  return is_half ? output.to(at::kFloat) : output;
}

void require_task(const Section& loss, const Task& task, std::initializer_list<TaskKind> kinds) {
  if (std::find(kinds.begin(), kinds.end(), task.kind) != kinds.end()) return;
  std::vector<std::string> names;
  for (const TaskKind kind : kinds) names.push_back(row_of(kind).name);
  throw ConfigError(loss.cite("name") + ": " + loss.text("name") + " does not fit the task, which is " +
                    row_of(task.kind).name + "; it is for: " + joined(names));
}

/// @param target  classes: of samples [N], tokens [N, T] or pixels [N, H, W]
at::Tensor smoothed_cross_entropy(const at::Tensor& output, const at::Tensor& target, double smoothing) {
  const bool has_classes_last = output.dim() != 4;
  return has_classes_last ? at::cross_entropy_loss(output.reshape({-1, output.size(-1)}), target.reshape({-1}), {},
                                                   at::Reduction::Mean, kIgnoredClass, smoothing)
                          : at::cross_entropy_loss(output, target, {}, at::Reduction::Mean, kIgnoredClass, smoothing);
}

Loss make_cross_entropy(const Section& loss, const Task& task) {
  require_task(loss, task, {TaskKind::classification, TaskKind::language, TaskKind::segmentation});
  const double smoothing = loss.real("label_smoothing");
  return [smoothing](const at::Tensor& output, const at::Tensor& target, bool is_training) {
    if (target.is_floating_point()) return soft_cross_entropy(output, target);
    return smoothed_cross_entropy(output, target, is_training ? smoothing : 0);
  };
}

Loss make_bce(const Section& loss, const Task& task) {
  require_task(loss, task, {TaskKind::classification, TaskKind::multilabel});
  const double smoothing = loss.real("label_smoothing");
  if (smoothing > 0 && task.kind == TaskKind::multilabel) {
    throw ConfigError(loss.cite("label_smoothing") + ": targets of several labels cannot be smoothed; use 0");
  }
  return [smoothing](const at::Tensor& output, const at::Tensor& target, bool is_training) {
    return binary_cross_entropy(output, target, is_training ? smoothing : 0);
  };
}

/// The losses of the model, unless labels are smoothed.
Loss make_auto(const Section& loss, const Task& task) {
  if (loss.real("label_smoothing") == 0) return {};
  const bool has_classes = row_of(task.kind).has_accuracy || task.kind == TaskKind::segmentation;
  if (has_classes) return make_cross_entropy(loss, task);
  throw ConfigError(loss.cite("label_smoothing") + ": targets of the task, which is " + row_of(task.kind).name +
                    ", cannot be smoothed; use 0");
}

}  // namespace

const std::vector<LossRow>& builtin_losses() {
  static const std::vector<LossRow> rows = {
      {"auto", "The losses of the model; with label smoothing, cross_entropy", {}, make_auto},
      {"cross_entropy", "Cross-entropy for classes, pixels and tokens", {}, make_cross_entropy},
      {"bce", "Binary cross-entropy of each class, for classes and labels", {}, make_bce},
  };
  return rows;
}

Loss make_loss(const Section& loss, const Task& task, const std::vector<LossRow>& rows) {
  return find_row(rows, loss.text("name"), loss.cite("name")).make(loss, task);
}

KeySpecs loss_keys(const std::vector<LossRow>& rows) {
  std::string names;
  for (const LossRow& row : rows) names += (names.empty() ? "" : "; ") + row.name + " = " + row.help;
  return keys_of_rows(
      {keys::text("loss.name", "auto", "Loss that is trained and evaluated. " + names),
       keys::real("loss.label_smoothing", "0",
                  "Part of the target of each training sample that is spread evenly over all classes", 0, 1)},
      rows);
}

at::Tensor soft_cross_entropy(const at::Tensor& output, const at::Tensor& target) {
  const at::Tensor scores = in_float32(output);
  return at::cross_entropy_loss(scores, target.to(scores.scalar_type()));
}

at::Tensor binary_cross_entropy(const at::Tensor& output, const at::Tensor& target, double smoothing) {
  const at::Tensor scores = in_float32(output);
  if (target.dim() == output.dim()) {
    return at::binary_cross_entropy_with_logits(scores, target.to(scores.scalar_type()));
  }
  const auto classes = static_cast<double>(output.size(-1));
  const at::Tensor is_counted = target.ne(kIgnoredClass);
  const at::Tensor of_class = at::one_hot(target.masked_fill(is_counted.logical_not(), 0), output.size(-1));
  const at::Tensor wanted = of_class.to(scores.scalar_type()) * (1 - smoothing) + smoothing / classes;
  const at::Tensor losses = at::binary_cross_entropy_with_logits(scores, wanted, {}, {}, at::Reduction::None);
  const at::Tensor count = is_counted.sum().to(scores.scalar_type()) * classes;
  return losses.masked_fill(is_counted.logical_not().unsqueeze(-1), 0).sum() / count;
}

}  // namespace lockstep::models
