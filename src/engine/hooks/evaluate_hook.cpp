// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/average.hpp>
#include <lockstep/engine/evaluation.hpp>
#include <lockstep/engine/hooks.hpp>
#include <lockstep/engine/phases.hpp>
#include <lockstep/engine/trainer.hpp>

#include <algorithm>

#include "confusion_count.hpp"
#include "sample_pictures.hpp"

namespace lockstep::engine {

namespace {

constexpr std::int64_t kMostCountedClasses = 100;

class EvaluateHook : public Hook {
 public:
  EvaluateHook(const Sections& sections, Phases phases, const std::vector<metrics::MeterRow>& rows)
      : eval_(sections.at("eval")),
        rows_(rows),
        pictures_(sections.at("log").integer("pictures")),
        interval_(eval_.integer("interval")),
        phases_(std::move(phases)),
        batch_size_(eval_.integer("batch_size")),
        weights_(eval_.text("weights")),
        weights_cited_(eval_.cite("weights")) {}

  void before_train(Trainer& trainer) override {
    trainer.strategy().world().together([&] {
      meters_ = make_meters(eval_, trainer.splits().test->task(), rows_);
      counted_classes_ = classes_to_count(trainer.splits().test->task());
      if (weights_ != "average" || trainer.strategy().average() != nullptr) return;
      throw ConfigError(weights_cited_ + ": there is no average of weights, since ema.kind is none");
    });
  }

  void between_steps(Trainer& trainer, const StepReport&) override {
    const Progress& at = trainer.progress();
    const bool is_due =
        interval_ == 0 ? at.step_in_epoch == 0 && phases_.is_test_due(at.epoch, false) : at.step % interval_ == 0;
    if (is_due || at.step == at.total_steps) evaluate_now(trainer);
  }

  // Of a run that had no more steps to make.
  void after_train(Trainer& trainer, Outcome outcome) override {
    if (outcome == Outcome::done && trainer.measured().step != trainer.progress().step) evaluate_now(trainer);
  }

 private:
  /// Of a confusion matrix that nobody asked for.
  std::int64_t classes_to_count(const Task& task) const {
    const bool is_small = task.classes >= 2 && task.classes <= kMostCountedClasses;
    return is_small && !task.is_text && task.predictions_per_sample == 1 ? task.classes : 0;
  }

  void evaluate_now(Trainer& trainer) const {
    EventStorage& events = trainer.events();
    metrics::ClassificationSums sums;
    metrics::Meters meters = meters_;
    ConfusionCount confusion(counted_classes_);
    SamplePictures pictures(events.keeps_pictures() ? pictures_ : 0);
    const auto tell = [&](Moment moment, const LastBatch& last) {
      trainer.tell(moment, last);
      if (moment != Moment::forward) return;
      confusion.add(last);
      pictures.add(last);
    };
    const auto measure = [&] {
      sums = evaluate(trainer.strategy(), *trainer.splits().test, batch_size_, meters, tell);
    };
    for (const auto& [priority, hook] : trainer.hooks()) hook->before_evaluation(trainer);
    weights_ == "trained" ? measure() : with_average(trainer.strategy(), measure);
    confusion.sum_over_ranks(trainer.strategy().collectives());
    Record record{.kind = "eval",
                  .values = {{"step", trainer.progress().step},
                             {"epoch", trainer.progress().epoch},
                             {"val/loss", sums.mean_loss()},
                             {"val/accuracy", sums.accuracy()},
                             {"val/count", sums.count}}};
    trainer.strategy().world().together([&] {  // the same everywhere, whether it can be read or not
      auto readings = meters.read();
      for (const auto& [name, number] : readings.numbers) record.values.emplace_back("val/" + name, number);
      const auto scope = events.scope("val");
      pictures.put_in(events);
      const bool is_told = std::any_of(readings.tables.begin(), readings.tables.end(),
                                       [](const Table& table) { return table.name == "confusion"; });
      if (auto table = confusion.table(); table && !is_told) events.put(std::move(*table));
      for (Table& table : readings.tables) events.put(std::move(table));
    });
    trainer.report(record);
    for (const auto& [priority, hook] : trainer.hooks()) hook->after_evaluation(trainer, trainer.measured());
  }

  Section eval_;
  std::vector<metrics::MeterRow> rows_;
  metrics::Meters meters_;  // that have counted nothing
  std::int64_t pictures_;
  std::int64_t counted_classes_ = 0;
  std::int64_t interval_;
  Phases phases_;
  std::int64_t batch_size_;
  std::string weights_;
  std::string weights_cited_;
};

}  // namespace

std::unique_ptr<Hook> evaluate_hook(const Sections& sections, const std::vector<metrics::MeterRow>& meters) {
  return std::make_unique<EvaluateHook>(sections, Phases(sections.at("train"), sections.at("eval")), meters);
}

}  // namespace lockstep::engine
