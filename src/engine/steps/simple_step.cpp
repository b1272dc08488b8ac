// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <stdexcept>

#include "rows.hpp"

namespace lockstep::engine {

void require_training_mode(const StepContext& at) {
  if (at.strategy.model().model().is_training()) return;
  throw std::logic_error(
      "the model is in evaluation mode in a train step: whoever calls eval() must call train() again");
}

parallel::StepResult finish_step(StepContext& at, const models::ParsedLosses& losses, const LastBatch& last,
                                 const std::function<void()>& after_backward) {
  parallel::DistributedDataParallel& wrapper = at.strategy.model();
  optim::OptimWrapper& optimizer = at.strategy.optimizer();
  const bool completes_step = optimizer.completes_step();
  parallel::StepResult result;
  result.update = optimizer.update_params(losses.total, at.weight, [&] {
    if (after_backward) after_backward();
    if (at.reads_gradients) wrapper.parameters().finish_gradients();
    at.tell(Moment::backward, last);
  });
  if (completes_step) at.tell(Moment::update, last);
  result.values = models::host_values(losses);  // last: on a GPU the host waits here
  result.loss = result.values.front().second;
  result.values.erase(result.values.begin());
  return result;
}

parallel::StepResult step_on_all_losses(StepContext& at) {
  require_training_mode(at);
  parallel::DistributedDataParallel& wrapper = at.strategy.model();
  optim::OptimWrapper& optimizer = at.strategy.optimizer();
  const auto frame = wrapper.micro_batch(optimizer, at.reads_gradients);
  LastBatch last{.input = at.batch.input, .target = wrapper.on_device(at.batch.target), .model = &wrapper.model()};
  if (optimizer.scaler() != nullptr) last.loss_scale = optimizer.scaler()->scale();
  models::ParsedLosses losses;
  {
    const auto context = wrapper.optim_context(optimizer);
    const at::Tensor output = wrapper.forward(at.batch.input);
    last.output = output.detach();
    at.tell(Moment::forward, last);
    losses = models::parse_losses(wrapper.model().losses(output, last.target), models::LossSum::all);
    last.losses = losses.values;
    at.tell(Moment::loss, last);
  }
  wrapper.name_anomalous(losses.total);
  return finish_step(at, losses, last);
}

TrainStep simple_step(const Section& train) {
  const std::string& precision = train.text("precision");
  if (precision == "bf16" || precision == "fp16") {
    throw ConfigError(train.cite("precision") +
                      ": the step \"simple\" computes in the type of the parameters; use train.step=amp");
  }
  return step_on_all_losses;
}

}  // namespace lockstep::engine
