// SPDX-License-Identifier: BSD-3-Clause
#include <optional>

#include "engine/steps/rows.hpp"

namespace lockstep::engine {

TrainStep model_step(const Section&) {
  return [](StepContext& at) {
    optim::OptimWrapper& optimizer = at.optimizer;
    const bool completes_step = optimizer.completes_step();
    LastBatch last = begin_batch(at);
    std::optional<PerfScope> section(std::in_place, "forward", at.perf);
    UpdateTimer update(at.perf);
    const parallel::StepObserver observer{
        .on_forward =
            [&](const at::Tensor& output, const at::Tensor&) {
              section.reset();
              last.output = output.detach();
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
              at.notify(StepEvent::backward, last);
            },
        .reads_gradients = at.reads_gradients,
    };
    parallel::StepResult result = at.wrapper.train_step(at.batch, optimizer, at.weight, observer);
    update.end();
    if (completes_step) at.notify(StepEvent::update, last);
    return result;
  };
}

}  // namespace lockstep::engine
