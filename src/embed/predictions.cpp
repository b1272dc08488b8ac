// SPDX-License-Identifier: BSD-3-Clause
#include "embed/predictions.hpp"

#include <c10/core/InferenceMode.h>

#include "engine/evaluation/batch_loop.hpp"

namespace lockstep::embed {

SampleTensors predictions_of(parallel::DistributedDataParallel& model, const SampleForm& form,
                             const SampleTensors& inputs) {
  const batch::Batch given = form.batch_of(inputs, /*has_targets=*/false);
  if (model.model().is_training()) model.model().eval();
  const c10::InferenceMode inference;
  const engine::EvaluatedBatch evaluated =
      engine::run_batch(model, given.size() > 0 ? given.share() : form.filler(given));
  SampleTensors predictions;
  for (const auto& [name, tensor] : evaluated.outputs.entries()) predictions.emplace_back(name, tensor);
  const models::Predictions own = model.model().predictions_of(evaluated.outputs, evaluated.batch);
  for (const auto& [name, tensor] : own.entries()) predictions.emplace_back(name, tensor);
  if (given.size() == 0) {
    for (auto& [name, tensor] : predictions) tensor = tensor.narrow(0, 0, 0);
  }
  return predictions;
}

}  // namespace lockstep::embed
