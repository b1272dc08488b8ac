// SPDX-License-Identifier: BSD-3-Clause
#include "engine/settings/nonfinite.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/engine/stateful.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/text/text_stream.hpp"

namespace lockstep::engine {

namespace {

// A fault of so many steps in a row is not the data of one; and a loss scale backs off by half in each, so that
// after as many something else than the scale is at fault.
constexpr std::int64_t kMaxInARow = 64;

/// The step was skipped for its gradients, as loss scaling does: all ranks know.
void report_skipped(std::int64_t step, const optim::GradScaler& scaler) {
  if (scaler.state().skipped_in_a_row >= kMaxInARow) {
    throw_agreed(ExitCode::numeric, "the gradients of " + std::to_string(kMaxInARow) +
                                        " consecutive steps were not finite, up to step " + std::to_string(step) +
                                        ", independent of the loss scale. The last checkpoint is kept. Reduce optim.lr "
                                        "or train.loss_scale, or use train.precision=bf16");
  }
  log::info(
      fmt::format("step {} skipped: gradients overflow in float16; the new loss scale is {:g}", step, scaler.scale()));
}

}  // namespace

KeySpecs NonfiniteSettings::keys() {
  return {
      keys::choice("train.nonfinite", "stop",
                   "Action when a loss or gradient is not finite. stop = end the run; skip = skip the step; roll_back "
                   "= return to the last checkpoint and skip the step when it is reached again. On GPUs, stop and "
                   "roll_back may act one step later, with the same result",
                   {"stop", "skip", "roll_back"}),
      keys::read_by(keys::integer("train.max_roll_backs", "3",
                                  "Maximum number of returns to a checkpoint before the run stops", 0, 1e6),
                    "train.nonfinite", {"roll_back"}),
  };
}

NonfiniteSettings NonfiniteSettings::from(const Section& train) {
  return {.policy = cited_text(train, "nonfinite"), .max_roll_backs = train.integer("max_roll_backs")};
}

NonfiniteHook::NonfiniteAction NonfiniteHook::judge(std::int64_t step, const StepReport& report,
                                                    const optim::GradScaler* scaler) {
  if (report.is_void) {
    log::warning("step " + std::to_string(step) + " is skipped: none of the targets of its batch counts");
    return NonfiniteAction::go_on;
  }
  const bool is_loss_finite = std::isfinite(report.loss);
  if (is_loss_finite && report.is_skipped && scaler != nullptr) report_skipped(step, *scaler);
  if (is_loss_finite && (scaler != nullptr || !report.is_skipped)) return NonfiniteAction::go_on;
  return judge_fault(step, is_loss_finite ? "the gradient" : "the loss", report.is_skipped);
}

NonfiniteHook::NonfiniteAction NonfiniteHook::judge_fault(std::int64_t step, const std::string& what, bool is_skipped) {
  if (policy_ == "stop")
    throw_agreed(ExitCode::numeric, what + " is not finite at step " + std::to_string(step) + kNonfiniteAdvice);
  count_in_a_row(step, what);
  if (policy_ == "roll_back" && rolls_back(step, what)) return NonfiniteAction::roll_back;
  ++skipped_;
  log::warning("step " + std::to_string(step) + (is_skipped ? " is skipped: " : ": ") + what + " is not finite (" +
               std::to_string(skipped_) + " such steps so far)");
  return NonfiniteAction::go_on;
}

void NonfiniteHook::count_in_a_row(std::int64_t step, const std::string& what) {
  in_a_row_ = step == last_step_ + 1 ? in_a_row_ + 1 : 1;
  last_step_ = step;
  if (in_a_row_ <= kMaxInARow) return;
  throw_agreed(ExitCode::numeric, what + " was not finite in " + std::to_string(kMaxInARow) +
                                      " consecutive steps, up to step " + std::to_string(step) + kNonfiniteAdvice);
}

/// Once for each step.
bool NonfiniteHook::rolls_back(std::int64_t step, const std::string& what) {
  if (std::find(rolled_back_.begin(), rolled_back_.end(), step) != rolled_back_.end()) return false;
  if (static_cast<std::int64_t>(rolled_back_.size()) == max_roll_backs_) {
    throw_agreed(ExitCode::numeric, what + " is not finite at step " + std::to_string(step) +
                                        ", and the run has already returned to a checkpoint " +
                                        std::to_string(max_roll_backs_) + " times (train.max_roll_backs)" +
                                        kNonfiniteAdvice);
  }
  rolled_back_.push_back(step);
  return true;
}

std::vector<std::shared_ptr<Stateful>> NonfiniteHook::states_of(const NonfiniteSettings& settings) {
  if (settings.policy.value == "stop") return {};
  return {hook_state("nonfinite", std::bind_front(&NonfiniteHook::save, this),
                     std::bind_front(&NonfiniteHook::load, this))};
}

void NonfiniteHook::save(checkpoints::Archive& archive, const std::string& group) const {
  archive.set(group, "skipped", skipped_);
  std::string steps;
  for (const std::int64_t step : rolled_back_) steps += (steps.empty() ? "" : " ") + std::to_string(step);
  archive.set(group, "rolled_back", steps);
}

void NonfiniteHook::load(const checkpoints::Archive& archive, const std::string& group) {
  skipped_ = std::max(skipped_, archive.integer(group, "skipped"));
  TextReader steps(archive.text(group, "rolled_back"));
  for (std::int64_t step = 0; steps >> step;) {
    if (std::find(rolled_back_.begin(), rolled_back_.end(), step) == rolled_back_.end()) rolled_back_.push_back(step);
  }
}

}  // namespace lockstep::engine
