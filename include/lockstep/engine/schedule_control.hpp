// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>
#include <lockstep/schedule/schedule.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::optim {
struct ParamGroup;
}

namespace lockstep::engine {

/// The settings of section `sched`; its keys are schedule::sched_keys.
struct ScheduleSettings {
  std::vector<std::string> rules = {};
  std::string origin = "";  ///< origin of the rules, for messages

  static ScheduleSettings from(const Section& sched);
};

/// The schedule of a run: its rules, the length of the run, and the step at which the schedule started. Not collective;
/// every rank makes the same calls.
class ScheduleControl {
 public:
  /// @param curves  the available curves; outlives this object
  explicit ScheduleControl(ScheduleSettings settings, const std::vector<schedule::Curve>& curves)
      : settings_(std::move(settings)), curves_(&curves) {}

  /// The schedule; its steps are counted from begin().
  schedule::Schedule& schedule() noexcept { return schedule_; }
  /// The rules as configured.
  const std::vector<std::string>& rules() const noexcept { return settings_.rules; }
  /// The length of the run for the rules.
  const schedule::RunLength& length() const noexcept { return length_; }
  /// The step at which the schedule started: 0, unless a resumed run restarted it.
  std::int64_t begin() const noexcept { return begin_; }

  /// Applies the rules to a run of this length, minus the steps before begin(). The state of the rules is kept.
  /// @throws ConfigError  like schedule::parse
  void plan(const schedule::RunLength& run);
  /// Replaces the rules, for a run of that length.
  /// @throws ConfigError  like schedule::parse; the previous rules are then kept
  void follow(std::vector<std::string> rules, const schedule::RunLength& length);
  /// Counts steps from this step. Call `plan` afterwards.
  void restart_at(std::int64_t step) noexcept { begin_ = step; }
  /// The factor of the schedule on the learning rate of a group in the step after `step` updates.
  /// @param part  part of the parameters to which the group belongs
  double factor(std::int64_t step, const optim::ParamGroup& group, const std::string& part = {}) const;

 private:
  ScheduleSettings settings_;
  const std::vector<schedule::Curve>* curves_;
  schedule::Schedule schedule_;
  schedule::RunLength length_;
  std::int64_t begin_ = 0;
};

}  // namespace lockstep::engine
