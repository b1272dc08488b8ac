// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>
#include <lockstep/log/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/system/clock.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/saving/saves.hpp"

namespace lockstep::engine {

namespace {

using Clock = std::chrono::steady_clock;

std::string in_tenths(double seconds) { return fmt::format("{:.1f} s", seconds); }

class TimeLimitHook : public Hook {
 public:
  explicit TimeLimitHook(TimeLimit limit) : Hook(HookReads::nothing()), limit_(std::move(limit)) {}

  void before_train(RunView&) override {
    const double left = seconds_between(Clock::now(), limit_.end);
    log::info(limit_.source + " ends this run in " + in_tenths(left) + "; a checkpoint is saved before");
  }

  void before_step(RunView&) override { resumed_at_ = Clock::now(); }

  // A step lasts from one agreement to the next, but for the time between between_steps and before_step, when
  // checkpoint_hook is at work.
  void before_agreement(RunView& run) override {
    const auto now = Clock::now();
    longest_step_ = std::max(longest_step_, seconds_before_pause_ + seconds_between(resumed_at_, now));
    resumed_at_ = now;
    const double left = seconds_between(now, limit_.end);
    const double lead = stop_lead(limit_.seconds, run.saves, longest_step_);
    if (!has_warned_ && (RunRequests::is_stop_requested() || left < lead)) warn_of_grace(left, run.saves);
    if (has_asked_ || left >= lead) return;
    has_asked_ = true;
    log::info(in_tenths(left) + " left until " + limit_.source + ", saving may take " + in_tenths(lead) +
              ": saving a checkpoint and stopping");
    RunRequests::stop();
  }

  void between_steps(RunView&, const StepReport&) override {
    seconds_before_pause_ = seconds_between(resumed_at_, Clock::now());
  }

 private:
  void warn_of_grace(double left, const Saves& saves) {
    const std::string warning = grace_warning(left, saves, limit_.source);
    if (warning.empty()) return;
    has_warned_ = true;
    log::warning(warning);
  }

  TimeLimit limit_;
  Clock::time_point resumed_at_;
  double seconds_before_pause_ = 0;
  double longest_step_ = 0;
  bool has_asked_ = false;
  bool has_warned_ = false;
};

}  // namespace

double stop_lead(double limit_seconds, const Saves& saves, double longest_step_seconds) {
  constexpr double kMargin = 30;
  constexpr double kMarginShare = 0.05;
  const double margin = std::min(kMargin, kMarginShare * limit_seconds);
  return 2 * saves.longest_seconds + longest_step_seconds + (saves.last_step < 0 ? 2 : 1) * margin;
}

std::string grace_warning(double seconds_left, const Saves& saves, const std::string& source) {
  if (saves.last_step < 0 || seconds_left >= saves.longest_seconds) return "";
  return in_tenths(std::max(0.0, seconds_left)) + " left until " + source + ", but the longest save so far took " +
         in_tenths(saves.longest_seconds) +
         ": the checkpoint may not be complete in time; then the previous one is the latest. Next time, request the "
         "stop earlier (train.time_limit, or --signal=USR2@SECONDS of Slurm)";
}

PrioritizedHook time_limit_hook(TimeLimit limit) {
  return {Priority::low, std::make_unique<TimeLimitHook>(std::move(limit))};
}

}  // namespace lockstep::engine
