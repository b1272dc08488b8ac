// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/model.hpp>

#include <torch/types.h>

#include <algorithm>

#include "models/layers/field_normalization.hpp"
#include "models/losses/task_table.hpp"

namespace lockstep::models {

void Model::set_family(families::FamilyRow family, const Task& task) {
  family_ = std::move(family);
  const auto parameters = named_parameters();
  const auto has_parameters = [&parameters](const std::string& module) {
    return std::ranges::any_of(parameters, [&](const auto& item) { return item.key().starts_with(module + "."); });
  };
  const auto head = std::ranges::find_if(family_.head, has_parameters);
  anatomy_ = {.head = head == family_.head.end() ? "" : *head, .stem = family_.stem, .positions = family_.positions};
  const at::Tensor* const positions = parameters.find(family_.positions);
  const at::Tensor* const patches = parameters.find(family_.stem + ".weight");
  if (positions == nullptr || patches == nullptr || task.sample_shape.size() != 3) return;
  anatomy_.grid_height = task.sample_shape[1] / patches->size(2);
  anatomy_.grid_width = task.sample_shape[2] / patches->size(2);
  anatomy_.prefix_tokens = positions->size(1) - anatomy_.grid_height * anatomy_.grid_width;
}

void Model::set_normalization(const FieldScaling& scaling, at::ScalarType dtype) {
  normalization_ = register_module("normalization", std::make_shared<FieldNormalization>(scaling, dtype));
}

batch::Batch Model::preprocess(batch::Batch batch, bool) const {
  if (input_change_) batch.set_input(input_change_(batch.at(batch.input_key())));
  return batch;
}

batch::Outputs Model::forward_batch(const batch::Batch& batch) { return forward(batch.input()); }

LossMap Model::losses(const at::Tensor& output, const at::Tensor& target) const {
  const TaskRow& row = row_of(task_kind_);
  if (row.losses != nullptr) {
    LossMap losses = row.losses(output, target);
    for (auto& [name, term] : losses) term.is_of_task = true;
    return losses;
  }
  throw ConfigError("the task is " + row.name + ", so the model must define its losses: override losses_of");
}

LossMap Model::losses_of(const batch::Outputs& outputs, const batch::Batch& batch) const {
  return losses(outputs.main(), batch.target());
}

std::vector<std::pair<std::string, double>> Model::counts(const batch::Batch&) const { return {}; }

Predictions Model::predict(const at::Tensor& output) const {
  const TaskRow& row = row_of(task_kind_);
  if (row.predict != nullptr) return row.predict(output);
  throw ConfigError("the task is " + row.name + ", so the model must define its predictions: override predictions_of");
}

Predictions Model::predictions_of(const batch::Outputs& outputs, const batch::Batch&) const {
  return predict(outputs.main());
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target) {
  return at::cross_entropy_loss(logits.view({-1, logits.size(-1)}), target.view({-1}));
}

}  // namespace lockstep::models
