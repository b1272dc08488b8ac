// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <algorithm>
#include <utility>

#include "core/text/parse_value.hpp"
#include "engine/hooks/hook_rows.hpp"
#include "engine/measures/precise_statistics.hpp"
#include "engine/settings/run_position.hpp"
#include "models/layers/generators.hpp"

namespace lockstep::engine {

namespace {

/// Takes the samples that the coming steps would train on, in the order of the sampler.
class PreciseBnHook : public Hook {
 public:
  PreciseBnHook(std::int64_t samples, bool is_wanted, const Every& every)
      : Hook(HookReads::nothing()), samples_(samples), is_wanted_(is_wanted), every_(every) {}

  void before_train(RunView& run) override {
    run.world.all_or_throw([&] {
      const std::int64_t there = run.data.sampler().steps_per_epoch() * run.data.sampler().global_batch_size();
      if (is_wanted_ && samples_ > there) {
        throw ConfigError("train.hooks: precise_bn: samples=" + std::to_string(samples_) + ", but an epoch has " +
                          std::to_string(there));
      }
      samples_ = std::min(samples_, there);
      is_off_ = PreciseStatistics(run.wrapper.model()).is_empty();
    });
    if (is_off_) log::info("precise_bn: no effect, because the model has no batch norm layers");
  }

  void before_evaluation(RunView& run) override {
    if (is_off_ || !is_due(run.progress)) return;
    PreciseStatistics statistics(run.wrapper.model());
    const std::int64_t batch = run.data.sampler().global_batch_size();
    const std::int64_t steps = (samples_ + batch - 1) / batch;
    run.world.all_or_throw([&] {
      for (std::int64_t step = 0; step < steps; ++step) {
        for (std::int64_t part = 0; part < run.data.layout().micro_batches; ++part) look(run, statistics, step, part);
      }
    });
    statistics.finish(run.collectives);
  }

 private:
  bool is_due(const Progress& progress) const {
    const bool is_always_due = every_ == Every(1);  // also before the first step
    return is_always_due || progress.step >= progress.total_steps || every_.is_due(position_of(progress));
  }

  /// One forward, which draws what depends on the place alone.
  static void look(RunView& run, PreciseStatistics& statistics, std::int64_t step, std::int64_t part) {
    const BatchLayout& layout = run.data.layout();
    const Progress& progress = run.progress;
    const std::int64_t position = progress.epoch * progress.steps_per_epoch + step;
    const batch::Batch batch = run.data.splits().train->get(run.data.draws_of(position, part));
    const auto place = static_cast<std::uint64_t>(layout.lanes > 0 ? layout.first_lane + part : part);
    models::seed_generators(run.draws.seed, random::Stream::forward, static_cast<std::uint64_t>(position),
                            run.draws.rank << 32 | place, run.device);
    statistics.observe([&] {
      const batch::Batch prepared = run.wrapper.prepare(batch, /*is_training=*/true);
      const auto context = run.wrapper.optim_context(run.optimizer);
      run.wrapper.forward(prepared);
    });
  }

  std::int64_t samples_;
  bool is_wanted_;  // the number that is wanted, not the number that is there
  Every every_;
  bool is_off_ = false;
};

/// Buffers are alike already where nothing has trained since the last time.
class SyncBuffersHook : public Hook {
 public:
  SyncBuffersHook() : Hook(HookReads::nothing()) {}

  void after_epoch(RunView& run) override { synchronize(run); }
  void before_evaluation(RunView& run) override { synchronize(run); }

 private:
  void synchronize(RunView& run) {
    const std::int64_t step = run.progress.step;
    if (std::exchange(step_, step) != step) run.wrapper.synchronize_buffers();
  }

  std::int64_t step_ = -1;  // step of the latest synchronization
};

/// 0 epochs meant every evaluation.
KeySpec every_of_statistics_key() {
  const auto translate = [](const std::string& epochs, const std::string&) {
    const std::int64_t number = parse_integer(epochs).value_or(0);
    return number > 0 ? Every({.epochs = number}).text() : "1";
  };
  return keys::replacing(
      every_key("1epochs", "recomputations; the end of the run is always included, and 1 = before every evaluation"),
      {.key = "every_epochs", .translate = translate});
}

}  // namespace

HookRow precise_bn_row() {
  return {.name = "precise_bn",
          .help = "Before evaluations, recomputes the running statistics of batch norm layers with the current weights",
          .keys = {keys::integer("samples", "8192",
                                 "Number of training samples over all ranks, limited by the size of the data set", 1,
                                 kMaxSteps),
                   every_of_statistics_key()},
          .priority = Priority::above_normal,
          .make = [](const Section& options, const HookContext&) {
            return std::make_unique<PreciseBnHook>(options.integer("samples"), !options.is_default("samples"),
                                                   every_of(options));
          }};
}

HookRow sync_buffers_row() {
  return {.name = "sync_buffers",
          .help = "Averages buffers (running statistics) over all ranks after each epoch and before each evaluation",
          .keys = {},
          .priority = Priority::normal,
          .make = [](const Section&, const HookContext&) { return std::make_unique<SyncBuffersHook>(); }};
}

}  // namespace lockstep::engine
