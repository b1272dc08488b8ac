// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/average.hpp>
#include <lockstep/engine/evaluation.hpp>
#include <lockstep/engine/hooks.hpp>
#include <lockstep/engine/phases.hpp>
#include <lockstep/engine/trainer.hpp>

namespace lockstep::engine {

namespace {

class EvaluateHook : public Hook {
 public:
  EvaluateHook(const Section& eval, Phases phases, const std::vector<metrics::MeterRow>& rows)
      : eval_(eval),
        rows_(rows),
        interval_(eval.integer("interval")),
        phases_(std::move(phases)),
        batch_size_(eval.integer("batch_size")),
        weights_(eval.text("weights")),
        weights_cited_(eval.cite("weights")) {}

  void before_train(Trainer& trainer) override {
    trainer.strategy().world().together([&] {
      meters_ = make_meters(eval_, trainer.splits().test->task(), rows_);
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
  void evaluate_now(Trainer& trainer) const {
    metrics::ClassificationSums sums;
    metrics::Meters meters = meters_;
    const auto tell = [&trainer](Moment moment, const LastBatch& last) { trainer.tell(moment, last); };
    const auto measure = [&] {
      sums = evaluate(trainer.strategy(), *trainer.splits().test, batch_size_, meters, tell);
    };
    for (const auto& [priority, hook] : trainer.hooks()) hook->before_evaluation(trainer);
    weights_ == "trained" ? measure() : with_average(trainer.strategy(), measure);
    Record record{.kind = "eval",
                  .values = {{"step", trainer.progress().step},
                             {"epoch", trainer.progress().epoch},
                             {"val/loss", sums.mean_loss()},
                             {"val/accuracy", sums.accuracy()},
                             {"val/count", sums.count}}};
    trainer.strategy().world().together([&] {  // the same everywhere, whether it can be read or not
      for (const auto& [name, number] : meters.read().numbers) record.values.emplace_back("val/" + name, number);
    });
    trainer.report(record);
    for (const auto& [priority, hook] : trainer.hooks()) hook->after_evaluation(trainer, trainer.measured());
  }

  Section eval_;
  std::vector<metrics::MeterRow> rows_;
  metrics::Meters meters_;  // that have counted nothing
  std::int64_t interval_;
  Phases phases_;
  std::int64_t batch_size_;
  std::string weights_;
  std::string weights_cited_;
};

}  // namespace

std::unique_ptr<Hook> evaluate_hook(const Sections& sections, const std::vector<metrics::MeterRow>& meters) {
  return std::make_unique<EvaluateHook>(sections.at("eval"), Phases(sections.at("train"), sections.at("eval")), meters);
}

}  // namespace lockstep::engine
