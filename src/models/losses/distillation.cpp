// SPDX-License-Identifier: BSD-3-Clause
#include "models/losses/distillation.hpp"

#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <utility>

#include "models/losses/loss_rows.hpp"

namespace lockstep::models {

namespace {

/// The dimension of the classes in scores [N, C], [N, T, C] and [N, C, H, W].
std::int64_t class_dimension(const at::Tensor& scores) { return scores.dim() == 4 ? 1 : scores.dim() - 1; }

/// The mean over all that counts of KL(softmax(teacher / t) || softmax(output / t)).
at::Tensor divergence(const at::Tensor& output, const at::Tensor& teacher, const at::Tensor& target,
                      std::int64_t ignored, double temperature) {
  if (output.sizes() != teacher.sizes()) {
    throw ConfigError(
        "distill.from: the outputs of the teacher have another shape than those of the model; use a "
        "teacher that was trained for the same task");
  }
  const std::int64_t classes = class_dimension(output);
  const at::Tensor mine = (in_float32(output) / temperature).log_softmax(classes);
  const at::Tensor wanted = (in_float32(teacher).to(mine.scalar_type()) / temperature).log_softmax(classes);
  const at::Tensor each = (wanted.exp() * (wanted - mine)).sum(classes);
  if (target.is_floating_point()) return each.mean();
  const at::Tensor is_counted = without_ignored(target, ignored).ne(kIgnoredClass).view_as(each);
  return each.masked_fill(is_counted.logical_not(), 0).sum() / is_counted.sum().to(each.scalar_type());
}

}  // namespace

Loss make_distill(const Section& loss, const Task& task) {
  require_task(loss, task, {TaskKind::classification, TaskKind::language, TaskKind::segmentation});
  if (!loss.text("class_weights").empty()) {
    throw ConfigError(loss.cite("class_weights") +
                      " cannot be combined with loss.name=distill: the scores of the teacher have no such weights; "
                      "leave it empty");
  }
  return task.kind == TaskKind::segmentation ? make_pixels(loss, task) : make_cross_entropy(loss, task);
}

Loss with_teacher(const Section& loss, const Task& task, const Distillation& distillation, Teacher teacher) {
  Loss distilled = make_distill(loss, task);
  const bool has_mask = task.kind == TaskKind::segmentation && task.classes <= kMaskIgnored;
  distilled.value = [=, cross_entropy = distilled.value, teacher = std::move(teacher),
                     ignored = ignored_class(loss, has_mask ? kMaskIgnored : kIgnoredClass)](
                        const batch::Outputs& outputs, const batch::Batch& batch, bool is_training) {
    const at::Tensor hard = cross_entropy(outputs, batch, is_training);
    if (!is_training) return hard;
    const double temperature = distillation.temperature;
    return (1 - distillation.alpha) * hard +
           distillation.alpha * temperature * temperature *
               divergence(outputs.main(), teacher(batch), batch.target(), ignored, temperature);
  };
  return distilled;
}

}  // namespace lockstep::models
