// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/parallel/manual_synchronization.hpp>

#include <memory>
#include <optional>

#include "engine/steps/rows.hpp"

namespace lockstep::engine {

namespace {

void require_not_over(const StepContext& step) {
  if (step.where < 1) return;
  throw std::logic_error(
      "a step after the end of the training (progress is 1): the sampler and the run were resumed at different "
      "positions; resume with the same global batch size and length of the run");
}

/// Averages gradients after backward, in place of the wrapper's reducer.
class ByHand {
 public:
  explicit ByHand(StepContext& step) : reducer_(step.wrapper.model(), step.wrapper.collectives()) {}
  void all_reduce() { reducer_.all_reduce(); }

  static void require_possible(const StepContext& step) {
    const bool has_whole_gradients = step.wrapper.collectives().world_size() == 1 || step.wrapper.has_buckets();
    if (has_whole_gradients && !step.optimizer.uses_closure()) return;
    throw ConfigError("train.manual_reduction requires whole gradients; set train.lanes=0 and strategy.name=ddp");
  }

 private:
  parallel::ManualReducer reducer_;
};

}  // namespace

TrainStep standard_step(const Section& train) {
  const bool is_manual = train.boolean("manual_reduction");
  const auto by_hand = std::make_shared<std::unique_ptr<ByHand>>();  // `by_hand` from the first step on
  return ManualStep([is_manual, by_hand](StepContext& step) {
    require_training_mode(step);
    require_not_over(step);
    parallel::DistributedDataParallel& wrapper = step.wrapper;
    optim::BaseOptimWrapper& optimizer = step.optimizer;
    if (is_manual && !*by_hand) {
      ByHand::require_possible(step);
      *by_hand = std::make_unique<ByHand>(step);
    }
    const auto frame = wrapper.micro_batch(optimizer, step.reads_gradients || is_manual);
    const batch::Batch prepared = wrapper.prepare(step.batch, /*is_training=*/true);
    LastBatch last = begin_batch(step, prepared);
    models::ParsedLosses losses;
    {
      std::optional<parallel::DistributedDataParallel::NoSync> no_sync;
      if (is_manual) {
        no_sync.emplace(wrapper);
        if (optimizer.completes_step()) parallel::manual_sync_parameters(wrapper);
      }
      const auto context = wrapper.optim_context(optimizer);
      losses = timed_losses(step, last, models::LossSum::main);
    }
    wrapper.name_anomalous(losses.total);
    return finish_step(step, losses, last, is_manual ? [&] { (*by_hand)->all_reduce(); } : std::function<void()>());
  });
}

}  // namespace lockstep::engine
