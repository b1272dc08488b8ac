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

LastBatch begin_batch(const StepContext& at) {
  LastBatch last{
      .input = at.batch.input, .target = at.wrapper.on_device(at.batch.target), .model = &at.wrapper.model()};
  const optim::GradScaler* const scaler = at.optimizer.scaler();
  if (scaler != nullptr) last.loss_scale = scaler->scale();
  return last;
}

at::Tensor timed_forward(StepContext& at, LastBatch& last) {
  at::Tensor output;
  {
    const PerfScope timer("forward", at.perf);
    output = at.wrapper.forward(last.input, at.batch.more);
  }
  last.output = output.detach();
  at.notify(StepEvent::forward, last);
  return output;
}

models::ParsedLosses timed_losses(StepContext& at, LastBatch& last, const at::Tensor& output, models::LossSum sum) {
  models::ParsedLosses losses;
  {
    const PerfScope timer("loss_compute", at.perf);
    losses = models::parse_losses(last.model->losses(output, last.target), sum);
  }
  last.losses = losses.values;
  at.notify(StepEvent::loss, last);
  return losses;
}

void require_training_mode(const StepContext& at) {
  if (at.wrapper.model().is_training()) return;
  throw std::logic_error(
      "the model is in evaluation mode in a train step: whoever calls eval() must call train() again");
}

parallel::StepResult finish_step(StepContext& at, const models::ParsedLosses& losses, const LastBatch& last,
                                 const std::function<void()>& after_backward) {
  parallel::DistributedDataParallel& wrapper = at.wrapper;
  optim::OptimWrapper& optimizer = at.optimizer;
  const bool completes_step = optimizer.completes_step();
  UpdateTimer timer(at.perf);
  timer.begin();
  parallel::StepResult result;
  result.update = optimizer.update_params(losses.total, at.weight, [&] {
    if (after_backward) after_backward();
    if (at.reads_gradients) wrapper.parameters().finish_gradients();
    timer.backward_ends();
    at.notify(StepEvent::backward, last);
  });
  timer.end();
  if (completes_step) at.notify(StepEvent::update, last);
  result.values = models::host_values(losses);  // last: on a GPU the host waits here
  result.loss = result.values.front().second;
  result.values.erase(result.values.begin());
  return result;
}

}  // namespace lockstep::engine
