// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/hooks.hpp>
#include <lockstep/engine/trainer.hpp>

#include <chrono>

namespace lockstep::engine {

namespace {

using Clock = std::chrono::steady_clock;

class LogHook : public Hook {
 public:
  explicit LogHook(std::int64_t interval) : interval_(interval) {}

  void before_train(Trainer&) override { last_ = Clock::now(); }

  void after_step(Trainer& trainer, const StepReport& report) override {
    ++steps_;
    busy_seconds_ += report.seconds;
    data_seconds_ += report.data_seconds;
    const Progress& at = trainer.progress();
    if (at.step % interval_ != 0 && at.step < at.total_steps) return;

    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    const double samples_per_second = static_cast<double>(steps_ * report.samples) / seconds;
    Record record{
        .kind = "train",
        .values = {
            {"step", at.step}, {"epoch", at.epoch}, {"samples", at.samples}, {"loss", report.loss}, {"lr", report.lr}}};
    if (report.grad_norm) record.values.emplace_back("grad_norm", *report.grad_norm);
    record.values.emplace_back("samples_per_second", samples_per_second);
    const Task task = trainer.splits().train->task();
    if (task.is_text) {
      record.values.emplace_back("tokens_per_second",
                                 samples_per_second * static_cast<double>(task.predictions_per_sample));
    }
    record.values.emplace_back("data_wait", busy_seconds_ > 0 ? data_seconds_ / busy_seconds_ : 0.0);
    record.values.emplace_back("seconds_per_step", seconds / static_cast<double>(steps_));
    trainer.report(record);
    last_ = now;
    steps_ = 0;
    busy_seconds_ = 0;
    data_seconds_ = 0;
  }

 private:
  std::int64_t interval_;
  Clock::time_point last_;
  std::int64_t steps_ = 0;
  double busy_seconds_ = 0;
  double data_seconds_ = 0;
};

}  // namespace

std::unique_ptr<Hook> log_hook(const Section& log) { return std::make_unique<LogHook>(log.integer("interval")); }

}  // namespace lockstep::engine
