// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include "engine/steps/rows.hpp"

namespace lockstep::engine {

parallel::StepResult step_on_all_losses(StepContext& step) {
  require_training_mode(step);
  parallel::DistributedDataParallel& wrapper = step.wrapper;
  optim::BaseOptimWrapper& optimizer = step.optimizer;
  const auto frame = wrapper.micro_batch(optimizer, step.reads_gradients);
  const batch::Batch prepared = wrapper.prepare(step.batch, /*is_training=*/true);
  LastBatch last = begin_batch(step, prepared);
  models::ParsedLosses losses;
  {
    const auto context = wrapper.optim_context(optimizer);
    losses = timed_losses(step, last, models::LossSum::all);
  }
  wrapper.name_anomalous(losses.total);
  return finish_step(step, losses, last);
}

TrainStep simple_step(const Section& train) {
  const std::string& precision = train.text("precision");
  if (precision == "bf16" || precision == "fp16") {
    throw ConfigError(train.cite("precision") +
                      ": train.step=simple computes in the type of the parameters; use train.step=amp");
  }
  return ManualStep(step_on_all_losses);
}

}  // namespace lockstep::engine
