// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/engine/stateful.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/text/table.hpp"
#include "core/text/text.hpp"
#include "engine/hooks/hooks.hpp"
#include "optim/rules/option_limits.hpp"

namespace lockstep::engine {

namespace {

/// A parameter group, and what the configuration says about it.
struct ScheduledGroup {
  optim::ParamGroup* group;
  std::string part;
  optim::Options bases;  // values as configured
  const optim::OptionLimits* limits;

  schedule::GroupName name() const { return {group->name, part}; }
};

/// The numbers of a length as they are stored.
std::vector<std::pair<std::string, std::int64_t*>> numbers_of(schedule::RunLength& length) {
  return {{"total_steps", &length.total_steps},
          {"steps_per_epoch", &length.steps_per_epoch},
          {"samples_per_step", &length.samples_per_step}};
}

/// "the run has 20 steps, not 10", or "" where nothing differs or is not known.
std::string difference(schedule::RunLength before, schedule::RunLength now) {
  const std::vector<std::string> words = {"the run has ", "an epoch has ", "a step has "};
  const std::vector<std::string> units = {" steps", " steps", " samples"};
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::int64_t was = *numbers_of(before)[i].second;
    const std::int64_t is = *numbers_of(now)[i].second;
    if (was == is || was == 0) continue;
    text += (text.empty() ? "" : ", ") + words[i] + std::to_string(is) + units[i] + ", not " + std::to_string(was);
  }
  return text;
}

/// The rule that decides about a schedule.
struct Rules {
  std::string lines;
  schedule::RunLength length;
};

/// Stored rules with the options of today.
std::string with_todays_options(const std::string& lines) {
  static const KeySpecs keys = schedule::sched_keys();
  const auto rule = std::ranges::find(keys, "sched.rule", &KeySpec::name);
  std::vector<std::string> rules = lines_in(lines);
  for (std::string& text : rules) text = todays_entry(text, rule->parts);
  return joined(rules, "\n");
}

class ScheduleHook : public Hook {
 public:
  explicit ScheduleHook(bool keeps_stored)
      : Hook(HookReads::nothing(), {hook_state("schedule", std::bind_front(&ScheduleHook::save, this),
                                               std::bind_front(&ScheduleHook::load, this))}),
        keeps_stored_(keeps_stored) {}

  void before_train(RunView& run) override {
    if (groups_.empty()) take_over_groups(run);
    run.world.all_or_throw([&] {
      if (stored_ && run.schedule.begin() < run.progress.step) go_on(run);
      std::vector<schedule::GroupName> groups;
      for (const ScheduledGroup& group : groups_) groups.push_back(group.name());
      run.schedule.schedule().require_groups(groups);
      require_within_limits(run);
      set_options(run);
    });
    for (const std::string& sentence : run.schedule.schedule().unused()) {
      if (run.world.is_root()) log::warning(sentence);
    }
    rules_ = {joined(run.schedule.rules(), "\n"), run.schedule.length()};
    learned_ = run.schedule.schedule().state();
  }

  void before_step(RunView& run) override {
    try {
      set_options(run);
    } catch (const ConfigError& error) {
      throw_agreed(ExitCode::configuration, error.what());  // every rank comes to the same values
    }
  }

  // The checkpoint to which a run returns has its own state.
  void before_epoch(RunView& run) override {
    if (std::exchange(roll_backs_, run.roll_backs) == run.roll_backs) return;
    run.world.all_or_throw([&] { run.schedule.schedule().load_state(learned_); });
  }

  void between_steps(RunView& run, const StepReport&) override {
    const Measured& measured = run.measured;
    if (!run.schedule.schedule().has_feedback() || measured.step != run.progress.step) return;
    const schedule::Numbers values(measured.values.begin(), measured.values.end());
    run.world.all_or_throw([&] { run.schedule.schedule().observe(measured.step - run.schedule.begin(), values); });
    learned_ = run.schedule.schedule().state();
  }

 private:
  static constexpr std::size_t kPlaces = 100;  // number of positions in a preview

  void save(checkpoints::Archive& archive, const std::string& group) const {
    archive.set(group, "rules", rules_.lines);
    schedule::RunLength length = rules_.length;
    for (const auto& [name, number] : numbers_of(length)) archive.set(group, name, *number);
    for (const auto& [name, value] : learned_) archive.set(group, name, value);
  }

  void load(const checkpoints::Archive& archive, const std::string& group) {
    stored_ = Rules{.lines = with_todays_options(archive.text(group, "rules")), .length = {}};
    for (const auto& [name, number] : numbers_of(stored_->length)) {
      if (archive.has_attribute(group, name)) *number = archive.integer(group, name);
    }
    learned_.clear();
    for (const auto& [name, value] : archive.attributes_of(group)) {
      if (name.starts_with("rule") && name != "rules") learned_[name] = archive.real(group, name);
    }
  }

  void take_over_groups(RunView& run) {
    for (auto& [part, wrapper] : run.parts) {
      optim::Optimizer& optimizer = wrapper.optimizer();
      limits_.push_back(std::make_unique<optim::OptionLimits>(optimizer.rule(), optimizer.state_names()));
      for (optim::ParamGroup& group : optimizer.groups()) {
        group.is_scheduled = true;
        groups_.push_back({.group = &group, .part = part, .bases = group.options, .limits = limits_.back().get()});
        groups_.back().bases["lr"] = group.base_lr;
      }
    }
  }

  /// Called after a restart. The rules that hold continue as if they had from the first step, and what was learned
  /// stays where it is still requested.
  void go_on(RunView& run) {
    const bool is_edited = joined(run.schedule.rules(), "\n") != stored_->lines;
    std::string change = is_edited ? "the schedule differs from the checkpoint's" : "";
    if (!is_edited && is_other_with(run, stored_->length)) {
      change = difference(stored_->length, run.schedule.length());
    }
    if (!change.empty()) follow_policy(run, change);
    try {
      run.schedule.schedule().load_state(learned_);
    } catch (const ConfigError& error) {
      log::warning(std::string(error.what()) + "; it starts from its initial state");
    }
  }

  /// Whether the rules that are given would come to something else in the rest of a run of `length`.
  bool is_other_with(RunView& run, const schedule::RunLength& length) const {
    const std::vector<std::string> rules = run.schedule.rules();
    const schedule::RunLength own_length = run.schedule.length();
    const std::vector<optim::Options> own = preview(run);
    try {
      run.schedule.follow(rules, length);
    } catch (const ConfigError&) {  // a rule that begins behind its end
      return true;
    }
    const bool is_other = preview(run) != own;
    run.schedule.follow(rules, own_length);
    return is_other;
  }

  /// The options of every group at even distances until the end of the run.
  std::vector<optim::Options> preview(RunView& run) const {
    std::vector<optim::Options> seen;
    for (std::size_t place = 0; place < kPlaces; ++place) {
      const std::int64_t step = step_at(run, place) - run.schedule.begin();
      for (const ScheduledGroup& group : groups_) {
        seen.push_back(group.bases);
        run.schedule.schedule().apply(step, group.name(), group.bases, seen.back());
      }
    }
    return seen;
  }

  static std::int64_t step_at(const RunView& run, std::size_t place) {
    const std::int64_t left = run.progress.total_steps - run.progress.step;
    const auto ahead = static_cast<double>(left) * static_cast<double>(place) / static_cast<double>(kPlaces);
    return run.progress.step + static_cast<std::int64_t>(ahead);
  }

  void follow_policy(RunView& run, const std::string& change) const {
    const bool is_root = run.world.is_root();
    if (keeps_stored_) {
      if (is_root) log::warning(change + "; the schedule of the checkpoint is used (resume.schedule=checkpoint)");
      run.schedule.follow(lines_in(stored_->lines), stored_->length);
    } else if (is_root) {
      log::warning(change + "; from step " + std::to_string(run.progress.step) +
                   " on, the configured schedule is used as if it had been used from the first step "
                   "(resume.schedule=checkpoint keeps the old one)");
    }
  }

  void set_options(RunView& run) const {
    const std::int64_t step = run.progress.step - run.schedule.begin();
    for (const ScheduledGroup& scheduled : groups_) {
      optim::ParamGroup& group = *scheduled.group;
      group.options["lr"] = group.base_lr;
      run.schedule.schedule().apply(step, scheduled.name(), scheduled.bases, group.options);
      require_within_limits(run, scheduled, group.options, run.progress.step);
    }
  }

  static void require_within_limits(RunView& run, const ScheduledGroup& scheduled_group, const optim::Options& options,
                                    std::int64_t step) {
    scheduled_group.limits->require(options, run.schedule.schedule().moved(scheduled_group.name(), options),
                                    scheduled_group.group->name, step);
  }

  /// A run is not begun whose schedule leads to where it cannot go, as far as can be seen from here.
  void require_within_limits(RunView& run) const {
    const std::vector<optim::Options> seen = preview(run);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      require_within_limits(run, groups_[i % groups_.size()], seen[i], step_at(run, i / groups_.size()));
    }
  }

  std::vector<ScheduledGroup> groups_;
  std::vector<std::unique_ptr<optim::OptionLimits>> limits_;  // one element per part
  bool keeps_stored_;
  Rules rules_;                  // that hold
  std::optional<Rules> stored_;  // rules stored in the checkpoint
  schedule::Numbers learned_;
  int roll_backs_ = 0;
};

}  // namespace

PrioritizedHook schedule_hook(const std::string& policy) {
  return {Priority::low, std::make_unique<ScheduleHook>(policy == "checkpoint")};
}

}  // namespace lockstep::engine
