// SPDX-License-Identifier: BSD-3-Clause
#include "rows.hpp"

namespace lockstep::engine {

TrainStep model_step(const Section&) {
  return [](StepContext& at) {
    optim::OptimWrapper& optimizer = at.strategy.optimizer();
    LastBatch last{.input = at.batch.input, .model = &at.strategy.model().model()};
    const bool completes_step = optimizer.completes_step();
    if (optimizer.scaler() != nullptr) last.loss_scale = optimizer.scaler()->scale();
    const parallel::StepObserver observer{
        .on_forward =
            [&](const at::Tensor& output, const at::Tensor& target) {
              last.output = output.detach();
              last.target = target;
              at.tell(Moment::forward, last);
            },
        .on_loss =
            [&](const models::ParsedLosses& losses) {
              last.losses = losses.values;
              at.tell(Moment::loss, last);
            },
        .on_backward = [&] { at.tell(Moment::backward, last); },
        .reads_gradients = at.reads_gradients,
    };
    parallel::StepResult result = at.strategy.model().train_step(at.batch, optimizer, at.weight, observer);
    if (completes_step) at.tell(Moment::update, last);
    return result;
  };
}

}  // namespace lockstep::engine
