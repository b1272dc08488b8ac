// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <chrono>

#include "engine/hooks/hook_rows.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/measures/run_times.hpp"
#include "engine/steps/perf_timer.hpp"

namespace lockstep::engine {

namespace {

constexpr const char* kTimer = "timer";
constexpr std::int64_t kStepsToJudge = 200;
constexpr double kWorthSaying = 0.01;  // part of the time

/// Counts the steps' own time, and with run.perf that of their sections: what evaluation and checkpoints take
/// between them does not slow the training down.
class TimerHook : public Hook {
 public:
  explicit TimerHook(const Every& every) : Hook(HookReads::nothing()), every_(every) {}

  void before_train(RunView& run) override {
    interval_loads_ = run_loads_ = data::load_times_of(*run.data.splits().train);
    run_chunks_ = data::chunk_bytes_of(*run.data.splits().train);
  }

  void after_step(RunView& run, const StepReport& report) override {
    ++steps_;
    const std::int64_t own_samples = run.data.layout().share.count;
    for (LoadingTimes* const times : {&interval_times_, &run_times_}) add(*times, report, own_samples);
    ++run_steps_;
    judge_loading(run, report);
    if (!is_log_due(report.progress, every_)) return;
    const double samples_per_second = static_cast<double>(steps_ * report.samples) / interval_times_.seconds;
    const Task task = run.data.splits().train->task();
    // A mean of all steps since the last line: there is nothing to smooth.
    const auto put = [&events = run.events](const std::string& name, double value) {
      events.put(name, value, {.is_smoothed = false, .owner = kTimer});
    };
    put("samples_per_second", samples_per_second);
    if (task.is_text) put("tokens_per_second", samples_per_second * static_cast<double>(task.predictions_per_sample));
    put("data_wait", interval_times_.wait_share());
    if (interval_times_.loading_seconds > 0) {
      put("loader_samples_per_second", run.world.size() * interval_times_.loaded_per_second(run.data.loader_threads()));
      put("loader_threads_needed", interval_times_.threads_needed());
    }
    put_load_times(run);
    put("seconds_per_step", interval_times_.seconds / static_cast<double>(steps_));
    if (PerfStats* const perf = run.perf) {
      perf->collect();
      for (const auto& [name, section] : perf->sections()) {
        put("time/" + name, section.host_ms.average());
        if (section.device_ms.count() > 0) put("device_time/" + name, section.device_ms.average());
      }
      perf->reset();
    }
    steps_ = 0;
    interval_times_ = {};
  }

 private:
  static void add(LoadingTimes& times, const StepReport& report, std::int64_t samples) {
    times.seconds += report.seconds;
    times.data_seconds += report.data_seconds;
    times.loading_seconds += report.loading_seconds;
    times.samples += samples;
  }

  /// The parts of the time of a sample, in milliseconds.
  void put_load_times(RunView& run) {
    const data::LoadTimes now = data::load_times_of(*run.data.splits().train);
    const data::LoadTimes times = now.since(interval_loads_);
    interval_loads_ = now;
    if (times.samples == 0) return;
    const auto put = [&](const char* name, double seconds) {
      run.events.put(name, 1e3 * seconds / static_cast<double>(times.samples), {.is_smoothed = false, .owner = kTimer});
    };
    put("load_ms/read", times.read_seconds);
    put("load_ms/decode", times.decode_seconds);
    put("load_ms/transform", times.transform_seconds);
  }

  /// Once, after an epoch or 200 steps: says how long the model waits for data.
  void judge_loading(const RunView& run, const StepReport& report) {
    const bool is_due = run_steps_ == kStepsToJudge || (report.progress.step_in_epoch == 0 && run_steps_ > 1);
    if (is_judged_ || !is_due) return;
    is_judged_ = true;
    if (!run.world.is_root()) return;
    const std::string text = data_wait_sentence(run_times_, run.data.loader_threads(), run.data.processors(),
                                                static_cast<int>(run.world.size())) +
                             load_times_text(data::load_times_of(*run.data.splits().train).since(run_loads_));
    run_times_.wait_share() >= kWorthSaying ? log::info(text) : log::debug(text);
    const std::string chunks = chunk_bytes_text(data::chunk_bytes_of(*run.data.splits().train).since(run_chunks_));
    if (!chunks.empty()) log::info(chunks);
  }

  Every every_;
  std::int64_t steps_ = 0;
  LoadingTimes interval_times_;
  LoadingTimes run_times_;          ///< since the start of this process
  data::LoadTimes interval_loads_;  ///< counters at the start of the interval
  data::LoadTimes run_loads_;       ///< counters at the start of this process
  data::ChunkBytes run_chunks_;     ///< counters at the start of this process
  std::int64_t run_steps_ = 0;
  bool is_judged_ = false;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class RunTimeHook : public Hook {
 public:
  explicit RunTimeHook(std::int64_t warmup) : Hook(HookReads::nothing()), clock_(warmup) {}

  void before_train(RunView&) override { clock_.begin(now()); }

  void after_step(RunView&, const StepReport& report) override { clock_.step(report.seconds, report.data_seconds); }

  void after_train(RunView&, Outcome) override {
    const std::string speed = clock_.speed();
    if (!speed.empty()) log::info("training speed: " + speed);
    log::info("training time: " + clock_.total(now()));
  }

 private:
  RunClock clock_;
};

}  // namespace

PrioritizedHook timer_hook(const Every& every) { return {Priority::normal, std::make_unique<TimerHook>(every)}; }

HookRow run_time_row() {
  return {.name = "run_time",
          .help =
              "Reports at the end of the run the time per step and the share of time spent in hooks and in waiting for "
              "data",
          .keys = {keys::integer("warmup", "3", "Number of first steps that are excluded", 0, kMaxSteps)},
          .priority = Priority::highest,
          .make = [](const Section& options, const HookContext&) {
            return std::make_unique<RunTimeHook>(options.integer("warmup"));
          }};
}

}  // namespace lockstep::engine
