// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/hooks.hpp>
#include <lockstep/engine/trainer.hpp>
#include <lockstep/log/log.hpp>

#include <algorithm>

namespace lockstep::engine {

namespace {

class AverageHook : public Hook {
 public:
  explicit AverageHook(const Section& ema) : ema_(&ema) {}

  void before_train(Trainer& trainer) override {
    if (trainer.strategy().average() == nullptr) return;
    trainer.strategy().world().together([&] { first_step_ = first_step(trainer.progress()); });
    const optim::AverageOptions& options = trainer.strategy().average()->options();
    if (options.decay < 0.5) {
      log::warning(ema_->cite("decay") + ": with " + std::to_string(options.decay) +
                   " the newest weights count for more than the average of all before them");
    }
  }

  void after_step(Trainer& trainer, const StepReport& report) override {
    optim::ModelAverage* const average = trainer.strategy().average();
    if (average != nullptr && report.progress.step >= first_step_) average->update();
  }

 private:
  std::int64_t first_step(const Progress& run) const {
    const std::int64_t step = ema_->integer("begin");
    const std::int64_t epoch = ema_->integer("begin_epoch");
    if (step > 0 && epoch > 0) {
      throw ConfigError(ema_->cite("begin") + " and " + ema_->cite("begin_epoch") + ": set one of them");
    }
    const std::int64_t first = epoch > 0 ? (epoch - 1) * run.steps_per_epoch + 1 : step;
    if (first > run.total_steps) {
      throw ConfigError(ema_->cite(epoch > 0 ? "begin_epoch" : "begin") + ": the average would begin with step " +
                        std::to_string(first) + ", but the run ends with step " + std::to_string(run.total_steps));
    }
    return first;
  }

  const Section* ema_;
  std::int64_t first_step_ = 0;
};

}  // namespace

std::unique_ptr<Hook> average_hook(const Section& ema) { return std::make_unique<AverageHook>(ema); }

}  // namespace lockstep::engine
