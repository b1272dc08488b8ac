// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/trainer.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/models/generators.hpp>

#include <algorithm>

#include "hook_rows.hpp"
#include "precise_statistics.hpp"

namespace lockstep::engine {

namespace {

/// Takes the samples that the coming steps would train on, in the order of the sampler.
class PreciseBnHook : public Hook {
 public:
  PreciseBnHook(std::int64_t samples, bool is_wanted, std::int64_t every_epochs)
      : samples_(samples), is_wanted_(is_wanted), every_epochs_(every_epochs) {}

  void before_train(Trainer& trainer) override {
    trainer.strategy().world().together([&] {
      const std::int64_t there = trainer.sampler().steps_per_epoch() * trainer.sampler().global_batch_size();
      if (is_wanted_ && samples_ > there) {
        throw ConfigError("train.hooks: precise_bn: samples=" + std::to_string(samples_) + ", but an epoch has " +
                          std::to_string(there));
      }
      samples_ = std::min(samples_, there);
      is_off_ = PreciseStatistics(trainer.strategy().model().model()).is_empty();
    });
    if (is_off_) log::info("precise_bn: the model has no batch norm layers, so nothing is done");
  }

  void before_evaluation(Trainer& trainer) override {
    if (is_off_ || !is_due(trainer.progress())) return;
    Strategy& strategy = trainer.strategy();
    PreciseStatistics statistics(strategy.model().model());
    const std::int64_t batch = trainer.sampler().global_batch_size();
    const std::int64_t steps = (samples_ + batch - 1) / batch;
    strategy.world().together([&] {
      for (std::int64_t step = 0; step < steps; ++step) {
        for (std::int64_t part = 0; part < strategy.micro_batches(); ++part) look(trainer, statistics, step, part);
      }
    });
    statistics.finish(strategy.collectives());
  }

 private:
  bool is_due(const Progress& at) const {
    if (every_epochs_ == 0 || at.step >= at.total_steps) return true;
    return at.step_in_epoch == 0 && at.epoch % every_epochs_ == 0;
  }

  /// One forward, which draws what depends on the place alone.
  static void look(Trainer& trainer, PreciseStatistics& statistics, std::int64_t step, std::int64_t part) {
    Strategy& strategy = trainer.strategy();
    const Progress& at = trainer.progress();
    const std::int64_t position = at.epoch * at.steps_per_epoch + step;
    const data::Batch batch = trainer.splits().train->get(trainer.samples_of(position, part));
    const auto place = static_cast<std::uint64_t>(strategy.lanes() > 0 ? strategy.first_lane() + part : part);
    models::seed_generators(strategy.seed(), random::Stream::forward, static_cast<std::uint64_t>(position),
                            strategy.rank_of_draws() << 32 | place, strategy.device());
    statistics.observe([&] {
      const auto context = strategy.model().optim_context(strategy.optimizer());
      strategy.model().forward(batch.input, batch.more);
    });
  }

  std::int64_t samples_;
  bool is_wanted_;  // as many as that, not as many as there are
  std::int64_t every_epochs_;
  bool is_off_ = false;
};

}  // namespace

std::unique_ptr<Hook> precise_bn_hook(const Section& options, const HookContext&) {
  return std::make_unique<PreciseBnHook>(options.integer("samples"), !options.is_default("samples"),
                                         options.integer("every_epochs"));
}

}  // namespace lockstep::engine
