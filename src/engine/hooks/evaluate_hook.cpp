// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/average.hpp>
#include <lockstep/engine/evaluation.hpp>
#include <lockstep/engine/hooks.hpp>
#include <lockstep/engine/trainer.hpp>

namespace lockstep::engine {

namespace {

class EvaluateHook : public Hook {
 public:
  explicit EvaluateHook(const Section& eval)
      : interval_(eval.integer("interval")),
        batch_size_(eval.integer("batch_size")),
        weights_(eval.text("weights")),
        weights_cited_(eval.cite("weights")) {}

  void before_train(Trainer& trainer) override {
    trainer.strategy().world().together([&] {
      if (weights_ != "average" || trainer.strategy().average() != nullptr) return;
      throw ConfigError(weights_cited_ + ": there is no average of weights, since ema.kind is none");
    });
  }

  void after_step(Trainer& trainer, const StepReport&) override {
    const Progress& at = trainer.progress();
    const bool is_due = interval_ == 0 ? at.step_in_epoch == 0 : at.step % interval_ == 0;
    if (is_due || at.step == at.total_steps) evaluate_now(trainer);
  }

  // Of a run that had no more steps to make.
  void after_train(Trainer& trainer, Outcome outcome) override {
    if (outcome == Outcome::done && trainer.measured().step != trainer.progress().step) evaluate_now(trainer);
  }

 private:
  void evaluate_now(Trainer& trainer) const {
    metrics::ClassificationSums sums;
    const auto measure = [&] { sums = evaluate(trainer.strategy(), *trainer.splits().test, batch_size_); };
    weights_ == "trained" ? measure() : with_average(trainer.strategy(), measure);
    trainer.report({.kind = "eval",
                    .values = {{"step", trainer.progress().step},
                               {"epoch", trainer.progress().epoch},
                               {"val/loss", sums.mean_loss()},
                               {"val/accuracy", sums.accuracy()},
                               {"val/count", sums.count}}});
  }

  std::int64_t interval_;
  std::int64_t batch_size_;
  std::string weights_;
  std::string weights_cited_;
};

}  // namespace

std::unique_ptr<Hook> evaluate_hook(const Section& eval) { return std::make_unique<EvaluateHook>(eval); }

}  // namespace lockstep::engine
