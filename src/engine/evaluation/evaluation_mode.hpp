// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/model.hpp>

#include "models/layers/constant_weights.hpp"

namespace lockstep::engine {

/// The model is in evaluation mode while one lives, and its parameters must not change.
class EvaluationMode {
 public:
  explicit EvaluationMode(models::Model& model) : model_(&model) { model.eval(); }
  ~EvaluationMode() { model_->train(); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  models::Model* model_;
  models::ConstantWeights constant_weights_;
};

}  // namespace lockstep::engine
