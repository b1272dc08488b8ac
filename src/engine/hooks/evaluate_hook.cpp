// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/run_data.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <algorithm>

#include "engine/evaluation/averaged_weights.hpp"
#include "engine/evaluation/class_numbers.hpp"
#include "engine/evaluation/confusion_count.hpp"
#include "engine/evaluation/evaluation.hpp"
#include "engine/evaluation/predicted_values.hpp"
#include "engine/evaluation/sample_pictures.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/settings/log_settings.hpp"

namespace lockstep::engine {

namespace {

class EvaluateHook : public Hook {
 public:
  EvaluateHook(EvalSettings settings, std::int64_t pictures, std::vector<metrics::MeterRow> rows)
      : settings_(std::move(settings)), pictures_(pictures), rows_(std::move(rows)) {}

  void before_train(RunView& run) override {
    run.world.all_or_throw([&] {
      const Task task = split_of(run.data.splits(), settings_.split).task();
      meters_ = make_eval_meters(settings_.metrics, task, rows_);
      classes_ = static_cast<std::size_t>(task.classes);
      counted_classes_ = ConfusionCount::classes_of(task, settings_.is_per_class);
      class_names_ = task.class_names;
      if (settings_.weights.value != "average" || run.average != nullptr) return;
      throw ConfigError(settings_.weights.cite + ": there is no average of the weights, because ema.kind is none");
    });
  }

  bool reads_report(const Progress& progress) const override { return settings_.is_due(progress); }

  void between_steps(RunView& run, const StepReport&) override {
    if (settings_.is_due(run.progress)) evaluate_now(run);
  }

  // The end of a run that had no more steps to make.
  void after_train(RunView& run, Outcome outcome) override {
    if (outcome == Outcome::done && run.measured.step != run.progress.step) evaluate_now(run);
  }

 private:
  void evaluate_now(RunView& run) const {
    EventStorage& events = run.events;
    const data::Dataset& dataset = split_of(run.data.splits(), settings_.split);
    EvaluationResult result;
    metrics::Meters meters = meters_;
    ConfusionCount confusion(counted_classes_);
    PredictedValues values(dataset.task().kind == TaskKind::regression ? dataset.size() : 0);
    SamplePictures pictures(events.keeps_pictures() ? pictures_ : 0, class_names_);
    const auto notify = [&](StepEvent event, const LastBatch& last) {
      run.notify(event, last);
      if (event != StepEvent::forward) return;
      confusion.add(last);
      values.add(last);
      pictures.add(last);
    };
    EvaluationLimits limits = settings_.limits;
    limits.loader_threads = run.data.loader_threads();
    const auto measure = [&] { result = evaluate(run.world, run.wrapper, dataset, limits, meters, notify); };
    run.begin_evaluation();
    settings_.weights.value == "trained" ? measure() : with_average(run.wrapper, run.average, measure);
    confusion.sum_over_ranks(run.collectives);
    values.gather(run.collectives);
    Record record{.kind = "eval", .values = {{"step", run.progress.step}, {"epoch", run.progress.epoch}}};
    for (const auto& [name, value] : result.values(dataset.task().kind)) {
      record.values.emplace_back("val/" + name, value);
    }
    record.values.emplace_back("val/count", result.count);
    run.world.all_or_throw([&] {  // the same everywhere, whether it can be read or not
      auto readings = meters.read();
      for (const auto& [name, number] : readings.numbers) record.values.emplace_back("val/" + name, number);
      const auto scope = events.scope("val");
      pictures.put_in(events);
      const bool is_told = std::any_of(readings.tables.begin(), readings.tables.end(),
                                       [](const Table& table) { return table.name == "confusion"; });
      const auto put = [&](Table table) {
        if (table.columns == class_names_.size()) table.names = class_names_;
        if (settings_.is_per_class) {
          for (const auto& [name, number] : class_numbers(table, class_names_, classes_)) {
            record.values.emplace_back("val/" + name, number);
          }
        }
        events.put(std::move(table));
      };
      if (auto table = confusion.table(); table && !is_told) put(std::move(*table));
      if (auto table = values.table()) put(std::move(*table));
      for (Table& table : readings.tables) put(std::move(table));
      run.report(record);
    });
    run.end_evaluation(run.measured);
  }

  EvalSettings settings_;
  std::int64_t pictures_;  // maximum number; 0 = none
  std::vector<metrics::MeterRow> rows_;
  metrics::Meters meters_;  // that have counted nothing
  std::size_t classes_ = 0;
  std::int64_t counted_classes_ = 0;
  std::vector<std::string> class_names_;
};

}  // namespace

std::unique_ptr<Hook> evaluate_hook(const Sections& sections, const std::vector<metrics::MeterRow>& meters) {
  const EvalSettings settings = EvalSettings::from(sections.at("eval"));
  if (settings.when == "never") return nullptr;
  return std::make_unique<EvaluateHook>(settings, LogSettings::from(sections.at("log")).pictures, meters);
}

}  // namespace lockstep::engine
