// SPDX-License-Identifier: BSD-3-Clause
#include <optional>

#include "engine/steps/rows.hpp"

namespace lockstep::engine {

TrainStep model_step(const Section&) {
  return ManualStep([](StepContext& at) {
    optim::BaseOptimWrapper& optimizer = at.optimizer;
    const bool completes_step = optimizer.completes_step();
    LastBatch last = begin_batch(at, at.batch);  // until the wrapper has prepared it
    std::optional<PerfScope> section(std::in_place, "forward", at.perf);
    UpdateTimer update(at.perf);
    const parallel::StepObserver observer{
        .on_forward =
            [&](const batch::Batch& prepared, const batch::Outputs& outputs) {
              section.reset();
              last.batch = &prepared;
              last.outputs = outputs.detached();
              at.notify(StepEvent::forward, last);
              section.emplace("loss_compute", at.perf);
            },
        .on_loss =
            [&](const models::ParsedLosses& losses) {
              section.reset();
              last.losses = losses.values;
              at.notify(StepEvent::loss, last);
              update.begin();
            },
        .on_backward =
            [&] {
              update.backward_ends();
              note_loss_scale(at, last);
              at.notify(StepEvent::backward, last);
            },
        .reads_gradients = at.reads_gradients,
        .reads_late = at.reads_late,
    };
    parallel::StepResult result = at.wrapper.train_step(at.batch, optimizer, at.weights, observer);
    update.end();
    if (completes_step) at.notify(StepEvent::update, last);
    return result;
  });
}

}  // namespace lockstep::engine
