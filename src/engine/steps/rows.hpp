// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/train_step.hpp>

namespace lockstep::engine {

/// The row that train.step names.
/// @throws ConfigError  an unknown name, with the nearest known one
const StepRow& chosen_step(const Section& train, const std::vector<StepRow>& rows);
/// A step in its explicit form.
struct MadeStep {
  ManualStep run;
  bool reads_late = false;  ///< see StepRow::reads_late
};
/// The step that the row makes which train.step names.
/// @throws ConfigError  also: the row made nothing
MadeStep make_step(const Section& train, const std::vector<StepRow>& rows);
/// Key `step` of section `train`, which describes the rows.
KeySpec step_key(const std::vector<StepRow>& rows);

/// The wrapper's own step: what is trained are the losses whose names say so.
TrainStep model_step(const Section& train);
/// The sum of all losses, in the type of the parameters.
/// @throws ConfigError  train.precision is of 16 bits
TrainStep simple_step(const Section& train);
/// The same in the type of train.precision.
TrainStep amp_step(const Section& train);
/// The loss called "loss", and on request reduction manually.
TrainStep standard_step(const Section& train);

/// A step in its explicit form. Of a step on losses: with all that surrounds it, and what is trained are the losses
/// whose names say so.
ManualStep completed(TrainStep step);

/// A step that trains the sum of all losses.
parallel::StepResult step_on_all_losses(StepContext& context);

/// The sections of OptimWrapper::update_params: backward, then optimizer_step, if the micro_batch has one.
class UpdateTimer {
 public:
  explicit UpdateTimer(PerfStats* perf) : backward_("backward", perf), update_("optimizer_step", perf) {}
  void begin();
  void backward_ends();
  void end();

 private:
  PerfTimer backward_;
  PerfTimer update_;
};

/// The view of the batch for hooks before its forward.
/// @param prepared  outlives what is returned
LastBatch begin_batch(const StepContext& step, const batch::Batch& prepared);
/// Forward and losses, as the model says; the hooks are notified of each.
models::ParsedLosses timed_losses(StepContext& step, LastBatch& last, models::LossSum sum);
/// Sets the scale of the gradients, from the backward pass on.
void note_loss_scale(const StepContext& step, LastBatch& last);
/// Backward and update; the hooks are notified. The losses' numbers are the result's.
/// @param last  as it was with StepEvent::loss
parallel::StepResult finish_step(StepContext& step, const models::ParsedLosses& losses, LastBatch& last,
                                 const std::function<void()>& after_backward = {});

/// @throws std::logic_error  the model is in evaluation mode
void require_training_mode(const StepContext& step);

}  // namespace lockstep::engine
