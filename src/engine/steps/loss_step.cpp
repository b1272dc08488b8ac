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

parallel::StepResult run_losses(StepContext& at, const LossStep& step) {
  require_training_mode(at);
  parallel::DistributedDataParallel& wrapper = at.wrapper;
  const auto frame = wrapper.micro_batch(at.optimizer, at.reads_gradients);
  const batch::Batch prepared = wrapper.prepare(at.batch, /*is_training=*/true);
  LastBatch last = begin_batch(at, prepared);
  models::ParsedLosses losses;
  {
    const auto context = wrapper.optim_context(at.optimizer);
    const PerfScope timer("forward", at.perf);
    const StepLosses given = wrapper.run([&] { return step(wrapper.model(), prepared); });
    last.outputs = given.outputs.detached();
    losses = models::parse_losses(given.losses, models::LossSum::named, at.weights);
  }
  at.notify(StepEvent::forward, last);
  last.losses = losses.values;
  at.notify(StepEvent::loss, last);
  wrapper.name_anomalous(losses.total);
  return finish_step(at, losses, last);
}

}  // namespace

ManualStep completed(TrainStep step) {
  if (auto* manual = std::get_if<ManualStep>(&step)) return std::move(*manual);
  return [on_losses = std::get<LossStep>(std::move(step))](StepContext& at) { return run_losses(at, on_losses); };
}

}  // namespace lockstep::engine
