// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/evaluation.hpp>
#include <lockstep/engine/hooks.hpp>
#include <lockstep/engine/trainer.hpp>

namespace lockstep::engine {

namespace {

class EvaluateHook : public Hook {
 public:
  EvaluateHook(std::int64_t interval, std::int64_t batch_size) : interval_(interval), batch_size_(batch_size) {}

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
    const metrics::ClassificationSums sums = evaluate(trainer.strategy(), *trainer.splits().test, batch_size_);
    trainer.report({.kind = "eval",
                    .values = {{"step", trainer.progress().step},
                               {"epoch", trainer.progress().epoch},
                               {"val/loss", sums.mean_loss()},
                               {"val/accuracy", sums.accuracy()},
                               {"val/count", sums.count}}});
  }

  std::int64_t interval_;
  std::int64_t batch_size_;
};

}  // namespace

std::unique_ptr<Hook> evaluate_hook(const Section& eval) {
  return std::make_unique<EvaluateHook>(eval.integer("interval"), eval.integer("batch_size"));
}

}  // namespace lockstep::engine
