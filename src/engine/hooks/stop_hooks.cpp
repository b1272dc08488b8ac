// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "core/text/duration.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/saving/saves.hpp"

namespace lockstep::engine {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookInterval{200};

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

void remove(const std::string& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  if (error) log::warning(path + " cannot be removed: " + error.message());
}

class RequestFileHook : public Hook {
 public:
  explicit RequestFileHook(const std::string& directory)
      : Hook(HookReads::nothing()), stop_file_(directory + "/STOP"), save_file_(directory + "/SAVE") {}

  void before_train(RunView& run) override {
    if (!run.world.is_root()) return;
    for (const std::string& file : {stop_file_, save_file_}) {
      if (!exists(file)) continue;
      log::warning(file + " existed before the start: it was removed and ignored");
      remove(file);
    }
  }

  void before_agreement(RunView& run) override {
    const auto now = Clock::now();
    if (!run.world.is_root() || now - looked_at_ < kLookInterval) return;
    looked_at_ = now;
    look_for_stop(run);
    look_for_save(run);
  }

  void after_train(RunView& run, Outcome outcome) override {
    if (outcome == Outcome::failed) return;  // else all is saved now
    if (!run.world.is_root()) return;
    for (const std::string& file : {stop_file_, save_file_}) {
      if (exists(file)) remove(file);
    }
  }

 private:
  void look_for_stop(RunView& run) const {
    if (!exists(stop_file_)) return;
    log::info("found " + stop_file_ + ": saving a checkpoint and ending the run");
    run.requests.end();
  }

  void look_for_save(RunView& run) {
    if (asked_at_step_ >= 0) {
      if (run.saves.last_step < asked_at_step_) return;
      remove(save_file_);
      asked_at_step_ = -1;
    } else if (exists(save_file_)) {
      log::info("found " + save_file_ + ": saving");
      run.requests.save();
      asked_at_step_ = run.progress.step + 1;
    }
  }

  std::string stop_file_;
  std::string save_file_;
  Clock::time_point looked_at_;
  std::int64_t asked_at_step_ = -1;  ///< step whose checkpoint SAVE requested; -1 = no request is pending
};

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

PrioritizedHook request_file_hook(std::string run_directory) {
  return {Priority::very_low, std::make_unique<RequestFileHook>(run_directory)};
}

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
