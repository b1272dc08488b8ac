// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <utility>

#include "core/system/status_line.hpp"
#include "core/text/duration.hpp"
#include "engine/evaluation/evaluation.hpp"
#include "engine/evaluation/evaluation_counts.hpp"
#include "engine/evaluation/field_views.hpp"
#include "engine/evaluation/sample_pictures.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/settings/log_settings.hpp"
#include "engine/settings/run_position.hpp"

namespace lockstep::engine {

namespace {

class EvaluateHook : public Hook {
 public:
  EvaluateHook(EvalSettings settings, LogSettings shown, std::vector<metrics::MeterRow> rows)
      : Hook({.report = [this](const Progress& progress) { return settings_.is_due(progress); }}),
        settings_(std::move(settings)),
        shown_(std::move(shown)),
        rows_(std::move(rows)) {}

  void before_train(RunView& run) override {
    evaluated_at_ = SteadyClock::now();
    run.world.all_or_throw([&] {
      const data::Dataset& dataset = split_of(run.data.splits(), settings_.split);
      fresh_ = {settings_, dataset, rows_, /*has_tables=*/true};
      fresh_views_ = FieldViews(dataset.task(), shown_);
      if (settings_.weights.value != "average" || run.average != nullptr) return;
      throw ConfigError(settings_.weights.cite + ": there is no average of the weights, because ema.kind is none");
    });
  }

  void before_step(RunView& run) override {
    const RunPosition next = next_position(run.progress);
    const double seconds = settings_.every.seconds_at(next);
    const bool is_due = seconds > 0 && settings_.begin.is_reached(next) && seconds_since(evaluated_at_) >= seconds;
    if (is_due) run.requests.evaluate();
  }

  void between_steps(RunView& run, const StepReport& report) override {
    if (settings_.is_due(run.progress) || report.is_evaluation_due) evaluate_now(run);
  }

  // The end of a run that had no more steps to make.
  void after_train(RunView& run, Outcome outcome) override {
    if (outcome == Outcome::done && run.measured.step != run.progress.step) evaluate_now(run);
  }

 private:
  void evaluate_now(RunView& run) {
    const ScopedActivity activity(Activity::evaluation);
    EventStorage& events = run.events;
    const data::Dataset& dataset = split_of(run.data.splits(), settings_.split);
    EvaluationResult result;
    EvaluationCounts counts = fresh_;
    const bool are_kept = !run.world.agree(!events.keeps_pictures());  // the root decides for all ranks
    FieldViews views = are_kept ? fresh_views_ : FieldViews();
    const bool has_samples = events.keeps_pictures() && !views.is_used();
    const Task task = dataset.task();
    SamplePictures pictures(has_samples ? shown_.pictures : 0, task.class_names, MapView(task.fields));
    const auto notify = [&](StepEvent event, const LastBatch& last) {
      run.notify(event, last);
      if (event != StepEvent::forward) return;
      pictures.add(last);
      views.add(last);
    };
    EvaluationLimits limits = settings_.limits;
    limits.loader_threads = run.data.loader_threads();
    const auto measure = [&] { result = counts.evaluate(run.world, run.wrapper, dataset, limits, notify); };
    run.begin_evaluation();
    settings_.weights.value == "trained" ? measure() : with_average(run.wrapper, run.average, measure);
    views.gather(run.wrapper.collectives());
    Record record{.kind = "eval", .values = {{"step", run.progress.step}, {"epoch", run.progress.epoch}}};
    for (const auto& [name, value] : result.values(dataset.task().kind)) {
      record.values.emplace_back("val/" + name, value);
    }
    record.values.emplace_back("val/count", result.count);
    run.world.all_or_throw([&] {  // the same everywhere, whether it can be read or not
      auto readings = counts.read();
      for (const auto& [name, number] : readings.numbers) record.values.emplace_back("val/" + name, number);
      for (const auto& [name, unit] : counts.units()) record.units.emplace_back("val/" + name, unit);
      const auto scope = events.scope("val");
      pictures.put_in(events);
      views.put_in(events, dataset);
      for (Table& table : readings.tables) events.put(std::move(table));
      run.report(record);
    });
    run.end_evaluation(run.measured);
    evaluated_at_ = SteadyClock::now();
  }

  EvalSettings settings_;
  LogSettings shown_;
  std::vector<metrics::MeterRow> rows_;
  EvaluationCounts fresh_;                // that have counted nothing
  FieldViews fresh_views_;                // the same
  SteadyClock::time_point evaluated_at_;  // time of the latest evaluation, or of the start
};

}  // namespace

PrioritizedHook evaluate_hook(const Sections& sections, const std::vector<metrics::MeterRow>& meters) {
  const EvalSettings settings = EvalSettings::from(sections.at("eval"));
  if (settings.is_never()) return {Priority::normal, callback_hook({})};
  return {Priority::normal, std::make_unique<EvaluateHook>(settings, LogSettings::from(sections.at("log")), meters)};
}

}  // namespace lockstep::engine
