// SPDX-License-Identifier: BSD-3-Clause
#include "engine/steps/micro_batch_events.hpp"

#include <utility>

#include "core/system/status_line.hpp"

namespace lockstep::engine {

MicroBatchEvents::MicroBatchEvents(LastBatch begun, const Notify& notify, const optim::BaseOptimWrapper* optimizer,
                                   PerfStats* perf)
    : last_(std::move(begun)),
      notify_(&notify),
      optimizer_(optimizer),
      perf_(perf),
      completes_step_(optimizer != nullptr && optimizer->completes_step()) {
  note_loss_scale();
}

void MicroBatchEvents::on_prepared(const batch::Batch& prepared) {
  last_.batch = &prepared;
  set_phase(Phase::forward);
  section_.emplace("forward", perf_);
}

void MicroBatchEvents::on_forward(const batch::Outputs& outputs) {
  section_.reset();
  last_.outputs = outputs.detached();
  (*notify_)(StepEvent::forward, last_);
  section_.emplace("loss_compute", perf_);
}

void MicroBatchEvents::on_loss(const models::ParsedLosses& losses) {
  section_.reset();
  last_.losses = losses.values;
  if (optimizer_ != nullptr) set_phase(Phase::backward);
  (*notify_)(StepEvent::loss, last_);
  section_.emplace("backward", perf_);
}

void MicroBatchEvents::on_backward() {
  set_phase(Phase::update);
  section_.emplace("optimizer_step", perf_);
  note_loss_scale();
  (*notify_)(StepEvent::backward, last_);
}

void MicroBatchEvents::on_update() {
  section_.reset();
  if (completes_step_) (*notify_)(StepEvent::update, last_);
}

/// The scale that a GPU decides is known only after the backward pass.
void MicroBatchEvents::note_loss_scale() {
  const optim::GradScaler* const scaler = optimizer_ != nullptr ? optimizer_->scaler() : nullptr;
  if (scaler != nullptr) last_.loss_scale = scaler->scale();
}

}  // namespace lockstep::engine
