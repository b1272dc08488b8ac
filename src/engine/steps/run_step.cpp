// SPDX-License-Identifier: BSD-3-Clause
#include <stdexcept>

#include "engine/steps/micro_batch_events.hpp"
#include "engine/steps/rows.hpp"

namespace lockstep::engine {

namespace {

void require_not_over(const StepContext& step) {
  if (step.where < 1) return;
  throw std::logic_error(
      "a step after the end of the training (progress is 1): the sampler and the run were resumed at different "
      "positions; resume with the same global batch size and length of the run");
}

}  // namespace

parallel::StepResult run_step(StepContext& step, const StepOptions& options) {
  require_not_over(step);
  MicroBatchEvents events({.given = &step.batch, .model = &step.wrapper.model()}, step.notify, &step.optimizer,
                          step.perf);
  events.reads_gradients = step.reads_gradients;
  events.reads_late = step.reads_late;
  return step.wrapper.train_step(step.batch, step.optimizer, step.weights, options, &events);
}

}  // namespace lockstep::engine
