// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loop/trainer.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <exception>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/message.hpp"
#include "engine/loop/step_agreement.hpp"

namespace lockstep::engine {

Trainer::Trainer(const Sections& sections, Strategy& strategy, data::Splits splits, const Registry& registry) {
  if (!strategy.is_prepared()) throw std::logic_error("Trainer: the strategy is not prepared");
  strategy.world().all_or_throw([&] { run_ = std::make_unique<Run>(sections, strategy, std::move(splits), registry); });
  auto nonfinite = std::make_unique<NonfiniteHook>(NonfiniteSettings::from(sections.at("train")));
  nonfinite_ = nonfinite.get();
  add_hook(Priority::very_high, std::move(nonfinite));
}

Outcome Trainer::train() {
  const HookList& hooks = run_->hooks;
  std::size_t begun = 0;  // hooks that have
  std::size_t ended = 0;
  try {
    for (; begun < hooks.size(); ++begun) hooks.at(begun).before_train(view());
    const Outcome outcome = loop();
    while (ended < begun) hooks.at(ended++).after_train(view(), outcome);
    return outcome;
  } catch (const Error& error) {
    // All ranks are between two steps: what was trained is saved. A failed save is not repeated.
    const bool can_save =
        is_between_steps_ && error.is_agreed() && dynamic_cast<const CheckpointError*>(&error) == nullptr;
    end_after_failure(ended, begun, can_save ? Outcome::stopped : Outcome::failed);
    throw;
  } catch (...) {
    end_after_failure(ended, begun, Outcome::failed);
    throw;
  }
}

/// Hooks that have begun and not ended hear of it; what they throw comes second.
void Trainer::end_after_failure(std::size_t first, std::size_t begun, Outcome outcome) noexcept {
  for (std::size_t i = first; i < begun; ++i) {
    try {
      run_->hooks.at(i).after_train(view(), outcome);
    } catch (const std::exception& error) {
      log::warning("a hook failed after this failure: " + message_of(error));
    }
  }
}

Outcome Trainer::loop() {
  const HookList& hooks = run_->hooks;
  const Progress& progress = run_->progress;
  run_->strategy.model().model().train();
  StepRunner runner(*run_, hooks.reads_gradients());
  std::unique_ptr<data::Loader> loader = run_->data.open_loader(progress);
  bool is_in_epoch = false;
  std::optional<Outcome> outcome;
  while (!outcome && !is_over()) {
    if (!std::exchange(is_in_epoch, true)) hooks.each(&Hook::before_epoch, view());
    hooks.each(&Hook::before_step, view());
    PerfTimer whole("train_step_total", run_->perf.get());
    whole.start();
    StepReport report = runner.run(*loader);
    hooks.each(&Hook::before_agreement, view());
    const Verdict verdict = judge(runner, report);
    whole.stop();
    whole.record();
    if (verdict.goes_back && go_back()) {
      loader = run_->data.open_loader(progress);
      is_in_epoch = false;
      continue;
    }
    outcome = verdict.outcome;
    is_in_epoch = complete_step(report);
  }
  return is_over() ? Outcome::done : *outcome;
}

/// Whether the epoch continues.
bool Trainer::complete_step(StepReport& report) {
  const HookList& hooks = run_->hooks;
  run_->advance();
  report.progress = run_->progress;
  hooks.each(&Hook::after_step, view(), report);
  const bool is_in_epoch = report.progress.step_in_epoch != 0;
  if (!is_in_epoch) hooks.each(&Hook::after_epoch, view());
  is_between_steps_ = true;
  hooks.each(&Hook::between_steps, view(), report);
  is_between_steps_ = false;
  return is_in_epoch;
}

bool Trainer::is_over() const {
  return run_->progress.step >= run_->progress.total_steps || run_->requests.is_finish_requested();
}

/// What the ranks have agreed on with this step, whose report gets its loss.
Trainer::Verdict Trainer::judge(const StepRunner& runner, StepReport& report) {
  const StepAgreement agreed =
      agree(run_->requests, runner.loss_parts(), view().world, view().collectives, run_->perf.get());
  report.loss = report.is_void ? std::numeric_limits<double>::quiet_NaN() : runner.mean_loss(agreed.losses);
  report.is_save_due = agreed.saves;
  run_->requests.clear_save();
  const NonfiniteHook::Verdict verdict =
      nonfinite_->judge(run_->progress.step + 1, report, run_->strategy.step_optimizer().scaler());
  if (verdict == NonfiniteHook::Verdict::roll_back) return {.outcome = std::nullopt, .goes_back = true};
  if (agreed.ends) return {.outcome = Outcome::ended};
  if (agreed.stops) return {.outcome = Outcome::stopped};
  return {};
}

/// Whether there was a checkpoint to go back to.
bool Trainer::go_back() {
  const std::string what = "step " + std::to_string(run_->progress.step + 1) + " is not finite";
  run_->hooks.each(&Hook::before_roll_back, view());
  if (!roll_back_ || !roll_back_()) {
    log::warning(what + "; the step is skipped, because there is no checkpoint to return to");
    return false;
  }
  log::warning(what + ": returning to step " + std::to_string(run_->progress.step));
  run_->strategy.model().model().train();
  run_->hooks.each(&Hook::after_roll_back, view());
  return true;
}

}  // namespace lockstep::engine
