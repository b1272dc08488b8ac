// SPDX-License-Identifier: BSD-3-Clause
#include <stdexcept>

#include "engine/steps/rows.hpp"

namespace lockstep::engine {

void UpdateTimer::begin() { backward_.start(); }

void UpdateTimer::backward_ends() {
  backward_.stop();
  backward_.record();
  update_.start();
}

void UpdateTimer::end() {
  PerfTimer& running = update_.is_running() ? update_ : backward_;
  if (!running.is_running()) return;
  running.stop();
  running.record();
}

LastBatch begin_batch(const StepContext& at, const batch::Batch& prepared) {
  LastBatch last{.given = &at.batch, .batch = &prepared, .model = &at.wrapper.model()};
  note_loss_scale(at, last);
  return last;
}

void note_loss_scale(const StepContext& at, LastBatch& last) {
  const optim::GradScaler* const scaler = at.optimizer.scaler();
  if (scaler != nullptr) last.loss_scale = scaler->scale();
}

models::ParsedLosses timed_losses(StepContext& at, LastBatch& last, models::LossSum sum) {
  batch::Outputs outputs;
  {
    const PerfScope timer("forward", at.perf);
    outputs = at.wrapper.forward(*last.batch);
  }
  last.outputs = outputs.detached();
  at.notify(StepEvent::forward, last);
  models::ParsedLosses losses;
  {
    const PerfScope timer("loss_compute", at.perf);
    losses = models::parse_losses(models::losses_of(*last.model, outputs, *last.batch), sum, at.weights);
  }
  last.losses = losses.values;
  at.notify(StepEvent::loss, last);
  return losses;
}

void require_training_mode(const StepContext& at) {
  if (at.wrapper.model().is_training()) return;
  throw std::logic_error("the model is in evaluation mode in a training step: after eval(), call train()");
}

parallel::StepResult finish_step(StepContext& at, const models::ParsedLosses& losses, LastBatch& last,
                                 const std::function<void()>& after_backward) {
  parallel::DistributedDataParallel& wrapper = at.wrapper;
  optim::BaseOptimWrapper& optimizer = at.optimizer;
  const bool completes_step = optimizer.completes_step();
  UpdateTimer timer(at.perf);
  timer.begin();
  if (losses.is_void) optimizer.skip_update();
  parallel::StepResult result;
  result.update = optimizer.update_params(losses.total, at.weights.of_total(), [&] {
    if (after_backward) after_backward();
    if (at.reads_gradients) wrapper.parameters().finish_gradients();
    timer.backward_ends();
    note_loss_scale(at, last);
    at.notify(StepEvent::backward, last);
  });
  timer.end();
  if (completes_step) at.notify(StepEvent::update, last);
  wrapper.read_losses(result, losses, at.weights, at.reads_late);
  return result;
}

}  // namespace lockstep::engine
