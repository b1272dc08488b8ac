// SPDX-License-Identifier: BSD-3-Clause
#include <optional>

#include "engine/steps/rows.hpp"

namespace lockstep::engine {

TrainStep model_step(const Section&) {
  return ManualStep([](StepContext& step) {
    optim::BaseOptimWrapper& optimizer = step.optimizer;
    const bool completes_step = optimizer.completes_step();
    LastBatch last = begin_batch(step, step.batch);  // until the wrapper has prepared it
    std::optional<PerfScope> section(std::in_place, "forward", step.perf);
    UpdateTimer update(step.perf);
    const parallel::StepObserver observer{
        .on_forward =
            [&](const batch::Batch& prepared, const batch::Outputs& outputs) {
              section.reset();
              last.batch = &prepared;
              last.outputs = outputs.detached();
              step.notify(StepEvent::forward, last);
              section.emplace("loss_compute", step.perf);
            },
        .on_loss =
            [&](const models::ParsedLosses& losses) {
              section.reset();
              last.losses = losses.values;
              step.notify(StepEvent::loss, last);
              update.begin();
            },
        .on_backward =
            [&] {
              update.backward_ends();
              note_loss_scale(step, last);
              step.notify(StepEvent::backward, last);
            },
        .reads_gradients = step.reads_gradients,
        .reads_late = step.reads_late,
    };
    parallel::StepResult result = step.wrapper.train_step(step.batch, optimizer, step.weights, observer);
    update.end();
    if (completes_step) step.notify(StepEvent::update, last);
    return result;
  });
}

}  // namespace lockstep::engine
