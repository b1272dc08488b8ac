// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loop/trainer.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <exception>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/system/status_line.hpp"
#include "core/text/text.hpp"
#include "engine/loop/run.hpp"
#include "engine/loop/step_agreement.hpp"

namespace lockstep::engine {

Trainer::Trainer(const Sections& sections, Composition& composition, data::Splits splits, const Registry& registry) {
  RunData data = make_training_data(sections, composition.resources, composition.model, std::move(splits), registry);
  composition.resources.world.all_or_throw(
      [&] { run_ = std::make_unique<Run>(sections, composition, std::move(data), registry); });
  auto nonfinite = std::make_unique<NonfiniteHook>(NonfiniteSettings::from(sections.at("train")));
  nonfinite_ = nonfinite.get();
  add_hook(Priority::very_high, std::move(nonfinite));
}

Outcome Trainer::train() {
  const ScopedActivity activity(Activity::training);
  try {
    begin();
    const Outcome outcome = loop();
    end(outcome);
    return outcome;
  } catch (const Error& error) {
    fail(&error);
    throw;
  } catch (...) {
    fail(nullptr);
    throw;
  }
}

void Trainer::begin() {
  const HookList& hooks = run_->hooks;
  for (begun_ = ended_ = 0; begun_ < hooks.size(); ++begun_) hooks.at(begun_).before_train(view());
  run_->model.wrapper->model().train();
  runner_ = std::make_unique<StepRunner>(*run_, hooks.reads_gradients());
  is_in_epoch_ = false;
  late_.reset();
}

void Trainer::end(Outcome outcome) {
  runner_.reset();
  while (ended_ < begun_) run_->hooks.at(ended_++).after_train(view(), outcome);
}

/// All ranks can be between two steps: what was trained is then saved. A failed save is not repeated. What hooks throw
/// here comes second.
void Trainer::fail(const Error* error) noexcept {
  const bool can_save = is_between_steps_ && error != nullptr && error->is_agreed() &&
                        dynamic_cast<const CheckpointError*>(error) == nullptr;
  const Outcome outcome = can_save ? Outcome::stopped : Outcome::failed;
  runner_.reset();
  for (; ended_ < begun_; ++ended_) {
    try {
      run_->hooks.at(ended_).after_train(view(), outcome);
    } catch (const std::exception& failure) {
      log::warning("a hook failed after this failure: " + message_of(failure));
    }
  }
}

Outcome Trainer::loop() {
  std::unique_ptr<data::Loader> loader = run_->data.open_loader(run_->progress);
  std::optional<Outcome> outcome;
  while (!outcome && !is_over()) {
    const StepEnd end = step(StepInput::of(*loader));
    if (end.has_gone_back) loader = run_->data.open_loader(run_->progress);
    outcome = end.outcome;
  }
  return is_over() ? Outcome::done : *outcome;
}

Trainer::StepEnd Trainer::step(const StepInput& input) {
  const HookList& hooks = run_->hooks;
  if (!std::exchange(is_in_epoch_, true)) hooks.each(&Hook::before_epoch, view());
  hooks.each(&Hook::before_step, view());
  PerfTimer whole("train_step_total", run_->perf.get());
  whole.start();
  QueuedStep step = runner_->run(input);
  hooks.each(&Hook::before_agreement, view());
  const StepDecision verdict = judge(step);
  whole.stop();
  whole.record();
  if (verdict.has_gone_back || (verdict.goes_back && go_back(run_->progress.step + 1))) {
    return {.has_gone_back = true};
  }
  is_in_epoch_ = complete_step(step.report);
  if (!step.report.is_measured) late_ = std::move(step);
  if (late_ && is_over()) finish_late();
  return {.outcome = verdict.outcome()};
}

void Trainer::resume() {
  run_->model.wrapper->model().train();
  ++view().roll_backs;
  is_in_epoch_ = false;
}

/// Whether the epoch continues.
bool Trainer::complete_step(StepReport& report) {
  const HookList& hooks = run_->hooks;
  set_phase(Phase::hooks);
  run_->advance(report.samples);
  report.progress = run_->progress;
  if (report.is_measured) hooks.each(&Hook::on_measured, view(), report);
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

std::optional<Outcome> Trainer::StepDecision::outcome() const {
  if (goes_back) return std::nullopt;
  if (ends) return Outcome::ended;
  if (stops) return Outcome::stopped;
  return std::nullopt;
}

/// Has the ranks agree, with the step at hand, on the loss of the step before, if that is still to be measured, and its
/// own, if any rank needs it now.
Trainer::StepDecision Trainer::judge(QueuedStep& step) {
  StepRunner& runner = *runner_;
  const bool reads_own = !runner.reads_late() || reads_report();
  const bool has_late = late_.has_value();
  if (has_late || reads_own) step.report.seconds += runner.measure(has_late ? *late_ : step);
  StepDecision verdict;
  std::vector<double> sums = agree_on(runner.loss_parts(has_late ? *late_ : step), reads_own, verdict);
  if (has_late && judge_late(runner.mean_loss(sums))) {
    runner.discard(step);
    verdict.has_gone_back = true;
    return verdict;
  }
  if (verdict.readers == 0 && !verdict.saves && !verdict.evaluates && !verdict.stops && !verdict.ends) return verdict;
  if (has_late || verdict.readers < view().world.size()) {
    step.report.seconds += runner.measure(step);
    sums = agree_on(runner.loss_parts(step), /*reads_report=*/true, verdict);
  }
  step.report.is_save_due = verdict.saves;
  step.report.is_evaluation_due = verdict.evaluates;
  verdict.goes_back = is_to_go_back(run_->progress.step + 1, step.report, runner.mean_loss(sums));
  return verdict;
}

/// Whether this rank needs the report of the step at hand before the next one is queued.
bool Trainer::reads_report() const {
  Progress after = run_->progress;
  after.advance(run_->data.layout().global_batch_size);
  return after.step >= after.total_steps || after.step_in_epoch == 0 || run_->hooks.reads_report(after);
}

/// @param losses  StepRunner::loss_parts
/// @return        their sums over ranks
std::vector<double> Trainer::agree_on(const std::vector<double>& losses, bool reads_report, StepDecision& verdict) {
  const StepAgreement agreed =
      agree(run_->requests, losses, reads_report, view().world, view().collectives, run_->perf.get());
  run_->requests.clear_step_requests();
  verdict.readers = agreed.readers;
  verdict.saves = verdict.saves || agreed.saves;
  verdict.evaluates = verdict.evaluates || agreed.evaluates;
  verdict.stops = verdict.stops || agreed.stops;
  verdict.ends = verdict.ends || agreed.ends;
  return agreed.losses;
}

/// Gives a report its loss, and judges it.
bool Trainer::is_to_go_back(std::int64_t step, StepReport& report, double loss) {
  report.loss = report.is_void ? std::numeric_limits<double>::quiet_NaN() : loss;
  return nonfinite_->judge(step, report, run_->updates.all().scaler()) == NonfiniteHook::NonfiniteAction::roll_back;
}

/// Judges the step before.
/// @return  whether the run has returned to a checkpoint
bool Trainer::judge_late(double loss) {
  QueuedStep step = *std::exchange(late_, std::nullopt);
  const std::int64_t number = step.report.progress.step;
  if (is_to_go_back(number, step.report, loss) && go_back(number)) return true;
  run_->hooks.each(&Hook::on_measured, view(), step.report);
  return false;
}

/// The run ends with the step before, at the request of a hook.
void Trainer::finish_late() {
  StepRunner& runner = *runner_;
  runner.measure(*late_);
  StepDecision verdict;
  const std::vector<double> sums = agree_on(runner.loss_parts(*late_), /*reads_report=*/true, verdict);
  judge_late(runner.mean_loss(sums));
}

/// Whether there was a checkpoint to go back to.
/// @param step  that is not finite
bool Trainer::go_back(std::int64_t step) {
  const std::string what = "step " + std::to_string(step) + " is not finite";
  if (run_->saves.finish) run_->saves.finish();
  if (!roll_back_ || !roll_back_()) {
    log::warning(what + "; the step is skipped, because there is no checkpoint to return to");
    return false;
  }
  log::warning(what + ": returning to step " + std::to_string(run_->progress.step));
  resume();
  return true;
}

}  // namespace lockstep::engine
