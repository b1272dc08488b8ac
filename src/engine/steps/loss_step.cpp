// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include "engine/steps/rows.hpp"

namespace lockstep::parallel {

template <>
struct OutputTraits<engine::StepLosses> {
  template <class Visit>
  static void visit(engine::StepLosses& value, const Visit& visit) {
    for (auto& [name, term] : value.losses) visit_tensors(term.parts, visit);
    visit_tensors(value.outputs, visit);
  }
};

}  // namespace lockstep::parallel

namespace lockstep::engine {

namespace {

parallel::StepResult run_losses(StepContext& step_context, const LossStep& step) {
  require_training_mode(step_context);
  parallel::DistributedDataParallel& wrapper = step_context.wrapper;
  const auto frame = wrapper.micro_batch(step_context.optimizer, step_context.reads_gradients);
  const batch::Batch prepared = wrapper.prepare(step_context.batch, /*is_training=*/true);
  LastBatch last = begin_batch(step_context, prepared);
  models::ParsedLosses losses;
  {
    const auto context = wrapper.optim_context(step_context.optimizer);
    const PerfScope timer("forward", step_context.perf);
    const StepLosses given = wrapper.run([&] { return step(wrapper.model(), prepared); });
    last.outputs = given.outputs.detached();
    losses = models::parse_losses(given.losses, models::LossSum::named, step_context.weights);
  }
  step_context.notify(StepEvent::forward, last);
  last.losses = losses.values;
  step_context.notify(StepEvent::loss, last);
  wrapper.name_anomalous(losses.total);
  return finish_step(step_context, losses, last);
}

}  // namespace

ManualStep completed(TrainStep step) {
  if (auto* manual = std::get_if<ManualStep>(&step)) return std::move(*manual);
  return [on_losses = std::get<LossStep>(std::move(step))](StepContext& context) {
    return run_losses(context, on_losses);
  };
}

}  // namespace lockstep::engine
