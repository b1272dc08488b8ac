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

LastBatch begin_batch(const StepContext& step, const batch::Batch& prepared) {
  LastBatch last{.given = &step.batch, .batch = &prepared, .model = &step.wrapper.model()};
  note_loss_scale(step, last);
  return last;
}

void note_loss_scale(const StepContext& step, LastBatch& last) {
  const optim::GradScaler* const scaler = step.optimizer.scaler();
  if (scaler != nullptr) last.loss_scale = scaler->scale();
}

models::ParsedLosses timed_losses(StepContext& step, LastBatch& last, models::LossSum sum) {
  batch::Outputs outputs;
  {
    const PerfScope timer("forward", step.perf);
    outputs = step.wrapper.forward(*last.batch);
  }
  last.outputs = outputs.detached();
  step.notify(StepEvent::forward, last);
  models::ParsedLosses losses;
  {
    const PerfScope timer("loss_compute", step.perf);
    losses = models::parse_losses(models::losses_of(*last.model, outputs, *last.batch), sum, step.weights);
  }
  last.losses = losses.values;
  step.notify(StepEvent::loss, last);
  return losses;
}

void require_training_mode(const StepContext& step) {
  if (step.wrapper.model().is_training()) return;
  throw std::logic_error("the model is in evaluation mode in a training step: after eval(), call train()");
}

parallel::StepResult finish_step(StepContext& step, const models::ParsedLosses& losses, LastBatch& last,
                                 const std::function<void()>& after_backward) {
  parallel::DistributedDataParallel& wrapper = step.wrapper;
  optim::BaseOptimWrapper& optimizer = step.optimizer;
  const bool completes_step = optimizer.completes_step();
  UpdateTimer timer(step.perf);
  timer.begin();
  if (losses.is_void) optimizer.skip_update();
  parallel::StepResult result;
  result.update = optimizer.update_params(losses.total, step.weights.of_total(), [&] {
    if (after_backward) after_backward();
    if (step.reads_gradients) wrapper.parameters().finish_gradients();
    timer.backward_ends();
    note_loss_scale(step, last);
    step.notify(StepEvent::backward, last);
  });
  timer.end();
  if (completes_step) step.notify(StepEvent::update, last);
  wrapper.read_losses(result, losses, step.weights, step.reads_late);
  return result;
}

}  // namespace lockstep::engine
