// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/engine/strategy.hpp>
#include <lockstep/models/model.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::engine {

/// What hooks see of the micro_batch at hand. Nothing here has a history: to look at it keeps no graph alive.
struct LastBatch {
  bool is_training = true;  ///< false: of an evaluation
  at::Tensor input;         ///< as the data set gave it
  at::Tensor target;        ///< on the model's device
  at::Tensor output;        ///< of the model
  /// From on_loss on: [] scalars by name, "loss" first, which is what is trained.
  std::vector<std::pair<std::string, at::Tensor>> losses = {};
  double loss_scale = 1;  ///< what gradients are multiplied by until the update
  const models::Model* model = nullptr;

  /// What the model says in its mode "predict"; made when asked for.
  models::Predictions predictions() const { return model->predict(output); }
};

}  // namespace lockstep::engine
