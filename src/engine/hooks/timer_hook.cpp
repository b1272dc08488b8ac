// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/perf_timer.hpp>
#include <lockstep/engine/run_data.hpp>
#include <lockstep/engine/run_view.hpp>

#include "engine/hooks/hooks.hpp"

namespace lockstep::engine {

namespace {

/// Counts the steps' own time, and with run.perf that of their sections: what evaluation and checkpoints take
/// between them does not slow the training down.
class TimerHook : public Hook {
 public:
  explicit TimerHook(std::int64_t interval) : interval_(interval) {}

  void after_step(RunView& run, const StepReport& report) override {
    ++steps_;
    seconds_ += report.seconds;
    data_seconds_ += report.data_seconds;
    if (!is_log_due(report.progress, interval_)) return;
    const double samples_per_second = static_cast<double>(steps_ * report.samples) / seconds_;
    const Task task = run.data.splits().train->task();
    // Of all steps since the last line: there is nothing to smooth.
    const auto put = [&events = run.events](const std::string& name, double value) {
      events.put(name, value, {.is_smoothed = false});
    };
    put("samples_per_second", samples_per_second);
    if (task.is_text) put("tokens_per_second", samples_per_second * static_cast<double>(task.predictions_per_sample));
    put("data_wait", data_seconds_ / seconds_);
    put("seconds_per_step", seconds_ / static_cast<double>(steps_));
    if (PerfStats* const perf = run.perf) {
      perf->collect();
      for (const auto& [name, section] : perf->sections()) {
        put("time/" + name, section.host_ms.average());
        if (section.device_ms.count() > 0) put("device_time/" + name, section.device_ms.average());
      }
      perf->reset();
    }
    steps_ = 0;
    seconds_ = 0;
    data_seconds_ = 0;
  }

 private:
  std::int64_t interval_;
  std::int64_t steps_ = 0;
  double seconds_ = 0;
  double data_seconds_ = 0;
};

}  // namespace

std::unique_ptr<Hook> timer_hook(std::int64_t interval) { return std::make_unique<TimerHook>(interval); }

}  // namespace lockstep::engine
