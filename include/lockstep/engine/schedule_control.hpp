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

/// What section `sched` says; its keys are schedule::sched_keys.
struct ScheduleSettings {
  std::vector<std::string> rules = {};
  std::string origin = "";  ///< where the rules came from, for messages

  static ScheduleSettings from(const Section& sched);
};

/// The schedule of a run: its rules, the length seed of the run as they see it, and the step at which it began. Not
/// collective: every rank makes the same calls.
class ScheduleControl {
 public:
  /// @param curves  which the rules may name; outlives this
  explicit ScheduleControl(ScheduleSettings settings, const std::vector<schedule::Curve>& curves)
      : settings_(std::move(settings)), curves_(&curves) {}

  /// Counts its steps from begin().
  schedule::Schedule& schedule() noexcept { return schedule_; }
  /// Its rules as they were given.
  const std::vector<std::string>& rules() const noexcept { return settings_.rules; }
  /// The run as its rules see it.
  const schedule::RunLength& length() const noexcept { return length_; }
  /// The step at which the schedule began: 0, unless a resumed run restarted it.
  std::int64_t begin() const noexcept { return begin_; }

  /// Puts the rules over a run of this length, less the steps before begin(); what they have learned stays.
  /// @throws ConfigError  as schedule::parse does
  void plan(const schedule::RunLength& run);
  /// Replaces the rules, for a run of that length.
  /// @throws ConfigError  as schedule::parse does; the old ones hold then
  void follow(std::vector<std::string> rules, const schedule::RunLength& length);
  /// Counts steps from this one. Call `plan` after it.
  void restart_at(std::int64_t step) noexcept { begin_ = step; }
  /// What the schedule multiplies the learning rate of a group with in the step after `step` updates.
  double factor(std::int64_t step, const optim::ParamGroup& group) const;

 private:
  ScheduleSettings settings_;
  const std::vector<schedule::Curve>* curves_;
  schedule::Schedule schedule_;
  schedule::RunLength length_;
  std::int64_t begin_ = 0;
};

}  // namespace lockstep::engine
