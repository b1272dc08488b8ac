// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <string>
#include <utility>

#include "core/text/table.hpp"
#include "core/text/text.hpp"
#include "models/losses/field_weights.hpp"
#include "models/losses/loss_rows.hpp"
#include "models/losses/task_table.hpp"

namespace lockstep::models {

namespace {

/// The usual loss of a task whose samples have weights.
Loss make_weighted(const Section& loss, const Task& task) {
  if (task.kind == TaskKind::regression) return make_mse(loss, task);
  if (task.kind == TaskKind::multilabel) return make_bce(loss, task);
  if (task.kind == TaskKind::segmentation) return make_pixels(loss, task);
  if (row_of(task.kind).has_accuracy) return make_cross_entropy(loss, task);
  throw ConfigError(loss.cite("name") + ": the samples have weights, but the losses of a task that is " +
                    row_of(task.kind).name + " do not weigh samples; remove the weights");
}

/// The losses of the model, unless a key changes the cross-entropy of classes, fields can have gaps, or samples have
/// weights.
Loss make_auto(const Section& loss, const Task& task) {
  const bool is_weighted = !loss.text("class_weights").empty();
  const bool has_ignored = loss.integer("ignore_index") != kIgnoredClass;
  const bool is_smoothed = loss.real("label_smoothing") != 0;
  const bool has_gaps = task.kind == TaskKind::regression && !task.fields.axes.empty();
  if (!is_weighted && !has_ignored && !is_smoothed && task.has_weights) return make_weighted(loss, task);
  if (!is_weighted && !has_ignored && !is_smoothed) return has_gaps ? make_mse(loss, task) : Loss();
  if (task.kind == TaskKind::segmentation) return make_pixels(loss, task);
  if (row_of(task.kind).has_accuracy) return make_cross_entropy(loss, task);
  const std::string kind = ": the task, which is " + row_of(task.kind).name;
  if (is_weighted || has_ignored) {
    throw ConfigError(loss.cite(is_weighted ? "class_weights" : "ignore_index") + kind +
                      ", has no cross-entropy of classes; choose its loss with loss.name");
  }
  throw ConfigError(loss.cite("label_smoothing") + ": targets of the task, which is " + row_of(task.kind).name +
                    ", cannot be smoothed; use 0");
}

}  // namespace

Loss loss_of_target(TargetLoss value, std::function<double(const at::Tensor& target)> count, ClassRange targets) {
  Loss loss{.value = [value = std::move(value)](
                         const batch::Outputs& outputs, const batch::Batch& batch,
                         bool is_training) { return value(outputs.main(), batch.target(), is_training); },
            .targets = targets};
  if (count) loss.count = [count = std::move(count)](const batch::Batch& batch) { return count(batch.target()); };
  return loss;
}

namespace {

KeySpec smoothing_key() {
  return keys::real("loss.label_smoothing", "0",
                    "Part of the target of each training sample that is spread evenly over all classes", 0, 1);
}

KeySpec class_weights_key() {
  return keys::text("loss.class_weights", "",
                    "Factor of each class in a cross-entropy: a comma-separated list, or a text file of numbers");
}

KeySpec ignored_key() {
  return keys::integer("loss.ignore_index", "-100",
                       "Class of targets that do not count, in addition to -100. The losses pixels, dice and jaccard "
                       "use 255 by default");
}

KeySpecs cross_entropy_keys() { return {smoothing_key(), class_weights_key(), ignored_key()}; }

KeySpec smooth_key() { return keys::real("loss.smooth", "0", "Added to numerator and denominator", 0); }

KeySpec output_weights_key() {
  return keys::reals("loss.weights", "", "Factor of each output of a regression; empty = 1 for all", 0);
}

KeySpecs distance_keys() {
  KeySpecs keys = field_weight_keys();
  keys.insert(keys.begin(), output_weights_key());
  return keys;
}

/// The keys of losses that are norms of fields. @param others  keys in addition to the common ones
KeySpecs norm_keys(const KeySpecs& others = {}) {
  KeySpecs keys = field_weight_keys();
  keys.push_back(keys::choice("loss.reduction", "mean",
                              "Mean over samples and channels, or sum over those of a micro-batch", {"mean", "sum"}));
  keys.insert(keys.end(), others.begin(), others.end());
  return keys;
}

KeySpec measure_key() {
  return keys::reals("loss.measure", "1", "Extent of space: one number for all axes, or one for each", 0);
}

KeySpec periodic_key() {
  return keys::words("loss.periodic", "false",
                     "true if the last point of an axis is a neighbor of the first: one word for all axes, or one for "
                     "each");
}

}  // namespace

const std::vector<LossRow>& builtin_losses() {
  constexpr bool kWeighs = true;  // LossRow::weighs_samples
  static const std::vector<LossRow> rows = {
      {"auto", "The losses of the model; with label smoothing, class weights or an ignored class, cross_entropy",
       cross_entropy_keys(), make_auto, kWeighs},
      {"cross_entropy", "Cross-entropy for classes, pixels and tokens", cross_entropy_keys(), make_cross_entropy,
       kWeighs},
      {"bce",
       "Binary cross-entropy of each class, for classes and labels",
       {smoothing_key(), ignored_key(),
        keys::text("loss.pos_weight", "", "Factor of the positive targets of each class: a list or a file")},
       make_bce,
       kWeighs},
      {"focal",
       "Binary cross-entropy in which well predicted targets weigh less",
       {ignored_key(),
        keys::real("loss.alpha", "0.25", "Weight of positive targets; 1 - alpha for negative ones. -1 = none", -1, 1),
        keys::real("loss.gamma", "2", "Exponent of the probability of an error", 0)},
       make_focal,
       kWeighs},
      {"mse", "Mean squared error", distance_keys(), make_mse, kWeighs},
      {"l1", "Mean absolute error", distance_keys(), make_l1, kWeighs},
      {"huber",
       "Squared error / 2 up to delta, linear beyond it",
       {output_weights_key(),
        keys::real_above("loss.delta", 0, keys::kUnlimited, "1", "Largest error that is squared")},
       make_huber,
       kWeighs},
      {"smooth_l1",
       "Huber loss divided by beta",
       {output_weights_key(), keys::real_above("loss.beta", 0, keys::kUnlimited, "1", "Largest error that is squared")},
       make_smooth_l1,
       kWeighs},
      {"relative_l2", "L2 norm of the error of each channel by that of its target", norm_keys(), make_relative_l2},
      {"relative_l1", "L1 norm of the error of each channel by that of its target", norm_keys(), make_relative_l1},
      {"h1", "relative_l2 with the first derivatives of fields", norm_keys({measure_key(), periodic_key()}), make_h1},
      {"l2", "L2 norm of the error of each channel", norm_keys({measure_key()}), make_l2},
      {"h1_absolute", "l2 with the first derivatives of fields", norm_keys({measure_key(), periodic_key()}),
       make_h1_absolute},
      {"pixels", "Cross-entropy of pixels", cross_entropy_keys(), make_pixels, kWeighs},
      {"dice", "1 - Dice coefficient of each class over a micro-batch", {ignored_key(), smooth_key()}, make_dice},
      {"jaccard",
       "1 - intersection over union of each class over a micro-batch",
       {ignored_key(), smooth_key()},
       make_jaccard},
      {"pixels+dice",
       "Weighted sum of both",
       {smoothing_key(), class_weights_key(), ignored_key(), smooth_key(),
        keys::real("loss.pixels_weight", "1", "Weight of the cross-entropy", 0),
        keys::real("loss.dice_weight", "1", "Weight of the Dice loss", 0)},
       make_pixels_and_dice},
      {"distill",
       "Cross-entropy and the divergence from a teacher, see section distill",
       {smoothing_key(), class_weights_key(), ignored_key()},
       make_distill},
  };
  return rows;
}

Loss make_loss(const Section& loss, const Task& task, const std::vector<LossRow>& rows) {
  const LossRow& row = find_row(rows, loss.text("name"), loss.cite("name"));
  if (task.has_weights && !row.weighs_samples) {
    std::vector<std::string> names;
    for (const LossRow& each : rows) {
      if (each.weighs_samples) names.push_back(each.name);
    }
    throw ConfigError(loss.cite("name") + ": " + row.name +
                      " does not weigh samples, but the samples have weights (data.weight_array); remove them, or "
                      "choose one of: " +
                      joined(names));
  }
  Loss made = row.make(loss, task);
  if (made || row.name == rows.front().name) return made;  // auto: none is that of the model
  throw ConfigError(loss.cite("name") + ": the function `make` of the loss returned nothing");
}

KeySpecs loss_keys(const std::vector<LossRow>& rows) {
  return keys_of_rows(keys::titled("Loss that is trained and evaluated",
                                   {keys::text("loss.name", "auto", "Loss that is trained and evaluated")}),
                      rows, {"loss.name"});
}

std::vector<std::pair<std::string, double>> counts_of(const Model& model, const batch::Batch& batch) {
  if (!model.loss().count) return model.counts(batch);
  return {{"loss", model.loss().count(batch)}};
}

bool counts_by_task(const Model& model) { return !model.loss() && row_of(model.task_kind()).count != nullptr; }

ClassRange target_classes(const Model& model, const Task& task) {
  if (model.loss()) return model.loss().targets;
  return {.classes = counts_by_task(model) ? task.classes : 0};
}

TargetCount count_targets(const Model& model, const batch::Batch& batch) {
  const TaskRow& row = row_of(model.task_kind());
  if (row.count == nullptr || !batch.has_target() || !batch.at(batch.target_key()).is<at::Tensor>()) return {};
  return {.counted = row.count(batch.target()), .all = static_cast<double>(batch.target().numel())};
}

at::Tensor soft_cross_entropy(const at::Tensor& output, const at::Tensor& target) {
  const at::Tensor scores = in_float32(output);
  return at::cross_entropy_loss(scores, target.to(scores.scalar_type()));
}

}  // namespace lockstep::models
