// SPDX-License-Identifier: BSD-3-Clause
#include "engine/evaluation/predictions.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/models/block.hpp>

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include "engine/evaluation/batch_loop.hpp"

namespace lockstep::engine {

namespace {

bool has_shape_of(const at::Tensor& output, std::int64_t samples, std::int64_t dimensions) {
  return output.dim() == dimensions && output.size(0) == samples && output.is_floating_point();
}

/// [N] and [N] of a language model: sums over the tokens that count, and their number.
void add_token_scores(BatchPredictions& predictions, const at::Tensor& output, const at::Tensor& target) {
  const at::Tensor counts = target.ne(data::kIgnored);
  const at::Tensor chosen = target.masked_fill(counts.logical_not(), 0).unsqueeze(-1);
  const at::Tensor scores = at::log_softmax(output, -1, at::kDouble).gather(-1, chosen).squeeze(-1);
  predictions.token_counts = counts.sum(-1);
  predictions.log_probabilities =
      scores.masked_fill(counts.logical_not(), 0).sum(-1) / predictions.token_counts.clamp_min(1);
}

void add_by_kind(BatchPredictions& predictions, const at::Tensor& output, TaskKind kind) {
  const std::int64_t samples = predictions.size();
  switch (kind) {
    case TaskKind::classification:
      if (has_shape_of(output, samples, 2)) predictions.probabilities = at::softmax(output, -1, at::kDouble);
      return;
    case TaskKind::multilabel:
      if (has_shape_of(output, samples, 2))
        predictions.probabilities = at::sigmoid(output.to(at::kDouble)).contiguous();
      return;
    case TaskKind::regression:
      if (output.size(0) == samples) predictions.values = output;
      return;
    case TaskKind::segmentation:
      if (has_shape_of(output, samples, 4)) predictions.masks = output.argmax(1);
      return;
    case TaskKind::language:
      if (has_shape_of(output, samples, 3) && predictions.target.defined()) {
        add_token_scores(predictions, output, predictions.target);
      }
      return;
    case TaskKind::custom:
      return;
  }
}

/// Names of the default predictions, which the other tensors express.
constexpr std::array<std::string_view, 4> kDefaults = {"classes", "labels", "values", "masks"};

bool is_expressed(const BatchPredictions& predictions, const std::string& name) {
  const bool has_own_form = predictions.probabilities.defined() || predictions.values.defined() ||
                            predictions.masks.defined() || predictions.log_probabilities.defined();
  return has_own_form && std::find(kDefaults.begin(), kDefaults.end(), name) != kDefaults.end();
}

void require_finite(const at::Tensor& output, const BatchPredictions& predictions, const batch::Batch& batch,
                    const Task& task, const data::Dataset& dataset) {
  if (!output.is_floating_point() || at::isfinite(output.sum()).item<bool>()) return;
  const std::vector<std::int64_t> finite = finite_steps(output, 1, batch, task.fields.scaling);
  for (std::int64_t i = 0; i < predictions.size(); ++i) {
    if (finite[static_cast<std::size_t>(i)] == 1) continue;
    const std::int64_t index = predictions.indices[static_cast<std::size_t>(i)];
    const std::string name = data::sample_name_of(dataset, index);
    throw NumericError("the output of the model for sample " + std::to_string(index) +
                       (name.empty() ? "" : " (" + name + ")") +
                       " is not finite; check the weights, the sample and train.precision");
  }
}

/// Classes of an image, targets of a regression, ...: a tensor with a row for each sample.
at::Tensor target_of(const batch::Batch& batch) {
  if (!batch.has_target() || !batch.at(batch.target_key()).is<at::Tensor>()) return {};
  const at::Tensor& target = batch.target();
  if (target.dim() == 0 || target.size(0) != batch.size()) return {};
  const bool is_unlabeled = target.scalar_type() == at::kLong && target.eq(data::kIgnored).all().item<bool>();
  return is_unlabeled ? at::Tensor() : target.cpu();
}

std::vector<std::int64_t> indices_of(const batch::Batch& batch) {
  std::vector<std::int64_t> indices;
  for (const batch::Draw& draw : batch.draws()) indices.push_back(draw.index);
  return indices;
}

}  // namespace

std::string class_name(const std::vector<std::string>& names, std::int64_t c) {
  return c >= 0 && c < std::ssize(names) ? names[static_cast<std::size_t>(c)] : std::to_string(c);
}

BatchPredictions predict_batch(parallel::DistributedDataParallel& wrapper, const batch::Batch& given, const Task& task,
                               const data::Dataset& dataset, RolloutEnds* ends) {
  const c10::InferenceMode inference;
  const EvaluatedBatch evaluated = run_batch(wrapper, given);
  at::Tensor output = evaluated.outputs.main().cpu();
  BatchPredictions predictions{.indices = indices_of(given), .target = target_of(given)};
  if (ends == nullptr) {
    require_finite(output, predictions, given, task, dataset);
  } else {
    output = ends->ended(output, given);
  }
  if (output.dim() > 0) add_by_kind(predictions, output, task.kind);
  const models::Predictions own = wrapper.model().predictions_of(evaluated.outputs, evaluated.batch);
  for (const auto& [name, tensor] : own.entries()) {
    if (is_expressed(predictions, name)) continue;
    if (tensor.dim() == 0 || tensor.size(0) != given.size()) {
      throw DataError("prediction '" + name + "' must have one row for each of the " + std::to_string(given.size()) +
                      " samples");
    }
    predictions.others.add(name, tensor.cpu());
  }
  return predictions;
}

at::Tensor features_of_batch(parallel::DistributedDataParallel& wrapper, const batch::Batch& given) {
  const c10::InferenceMode inference;
  const std::string head = wrapper.model().anatomy().head;
  if (head.empty()) {
    throw ConfigError(
        "predict.output=features: the model does not name its head; use a model that does, such as resnet18, or "
        "set models::FamilyRow::head of its ModelRow::family");
  }
  at::Tensor features;
  const models::ScopedTap tap([&](models::Block& block, const models::Tensors& inputs, const models::Forward& next) {
    if (block.path() == head && !inputs.empty()) features = inputs.front();
    return next(inputs);
  });
  run_batch(wrapper, given);
  if (!features.defined() || features.dim() < 2 || features.size(0) != given.size()) {
    throw ConfigError("predict.output=features: the module '" + head +
                      "' of the model did not run as a block with one row for each sample");
  }
  features = features.to(at::kCPU, at::kFloat);
  if (features.dim() == 3) return features.mean(1).contiguous();            // [N, T, E]
  if (features.dim() > 3) return features.flatten(2).mean(2).contiguous();  // [N, E, H, W]
  return features.contiguous();
}

}  // namespace lockstep::engine
