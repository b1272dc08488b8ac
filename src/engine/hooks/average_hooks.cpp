// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <utility>

#include "core/text/text.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/settings/run_position.hpp"
#include "optim/averages/average_times.hpp"
#include "optim/averages/model_average.hpp"
#include "parallel/comm_hooks/post_local_sgd.hpp"
#include "parallel/store/parameter_store.hpp"

namespace lockstep::engine {

namespace {

class AverageHook : public Hook {
 public:
  explicit AverageHook(EmaSettings settings) : Hook(HookReads::nothing()), settings_(std::move(settings)) {}

  void before_train(RunView& run) override {
    if (run.average == nullptr) return;
    run.world.all_or_throw([&] { require_begin(run.progress); });
    const optim::AverageOptions& options = run.average->options();
    if (options.decay < 0.5) {
      log::warning(settings_.decay_cite + ": with " + number_text(options.decay) +
                   " the new weights have a larger factor than the average");
    }
  }

  void after_step(RunView& run, const StepReport& report) override {
    optim::ModelAverage* const average = run.average;
    if (average == nullptr) return;
    const RunPosition position = position_of(report.progress);
    if (settings_.begin.value.is_reached(position) && is_due(position)) average->update();
  }

 private:
  /// A number of steps is the interval of the average itself, which counts from the first averaged step.
  bool is_due(const RunPosition& position) const {
    return settings_.every.is_step_count() || settings_.every.is_due(position);
  }

  void require_begin(const Progress& run) const {
    const std::int64_t first = settings_.begin.value.first_step(run.steps_per_epoch);
    if (first <= run.total_steps) return;
    throw ConfigError(settings_.begin.cite + ": the average would start at step " + std::to_string(first) +
                      ", but the run ends at step " + std::to_string(run.total_steps));
  }

  EmaSettings settings_;
};

class PostLocalHook : public Hook {
 public:
  explicit PostLocalHook(parallel::PostLocalSgd& averages) : Hook(HookReads::nothing()), averages_(&averages) {}

  void after_step(RunView& run, const StepReport&) override { averages_->after_update(run.wrapper); }
  void before_evaluation(RunView& run) override { averages_->average_all(run.wrapper); }

  /// All ranks have the same weights and moments, as after resuming from the checkpoint, after it.
  void before_save(RunView& run) override {
    averages_->average_all(run.wrapper);
    for (auto& [part, wrapper] : run.parts) {
      optim::Optimizer& optimizer = wrapper.optimizer();
      for (std::size_t block = 0; block < wrapper.parameters().blocks().size(); ++block) {
        for (std::size_t slot = 0; slot < optimizer.state_names().size(); ++slot) {
          run.collectives.broadcast(optimizer.state(block, slot), 0);
        }
      }
    }
  }

 private:
  parallel::PostLocalSgd* averages_;
};

}  // namespace

EmaSettings EmaSettings::from(const Section& ema) {
  return {.every = optim::average_times(ema),
          .begin = {Begin::parse(ema.text("begin"), ema.cite("begin")), ema.cite("begin")},
          .decay_cite = ema.cite("decay")};
}

PrioritizedHook average_hook(const EmaSettings& ema) { return {Priority::high, std::make_unique<AverageHook>(ema)}; }

PrioritizedHook post_local_hook(parallel::PostLocalSgd& averages) {
  return {Priority::highest, std::make_unique<PostLocalHook>(averages)};
}

}  // namespace lockstep::engine
