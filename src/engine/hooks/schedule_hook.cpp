// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/engine/hooks.hpp>
#include <lockstep/engine/trainer.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/optim/option_limits.hpp>

#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::engine {

namespace {

std::vector<optim::ParamGroup>& groups_of(Trainer& trainer) {
  return trainer.strategy().optimizer().optimizer().groups();
}

std::string one_a_line(const std::vector<std::string>& rules) {
  std::string lines;
  for (const std::string& rule : rules) lines += (lines.empty() ? "" : "\n") + rule;
  return lines;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream lines(text);
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  return all;
}

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

/// What decides about a schedule.
struct Rules {
  std::string lines;
  schedule::RunLength length;
};

class ScheduleHook : public Hook {
 public:
  explicit ScheduleHook(bool keeps_stored) : keeps_stored_(keeps_stored) {}

  void before_train(Trainer& trainer) override {
    if (bases_.empty()) {
      for (optim::ParamGroup& group : groups_of(trainer)) {
        group.is_scheduled = true;
        bases_.push_back(group.options);
        bases_.back()["lr"] = group.base_lr;
      }
    }
    const optim::Optimizer& optimizer = trainer.strategy().optimizer().optimizer();
    limits_ = std::make_unique<optim::OptionLimits>(optimizer.rule(), optimizer.state_names());
    trainer.strategy().world().together([&] {
      if (stored_ && trainer.schedule_begin() < trainer.progress().step) go_on(trainer);
      std::vector<std::string> groups;
      for (const optim::ParamGroup& group : groups_of(trainer)) groups.push_back(group.name);
      trainer.schedule().require_groups(groups);
      require_within_limits(trainer);
      set_options(trainer);
    });
    rules_ = {one_a_line(trainer.schedule_rules()), trainer.schedule_length()};
    learned_ = trainer.schedule().state();
  }

  void before_step(Trainer& trainer) override {
    try {
      set_options(trainer);
    } catch (const ConfigError& error) {
      throw_agreed(ExitCode::configuration, error.what());  // every rank comes to the same values
    }
  }

  void after_roll_back(Trainer& trainer) override {
    trainer.strategy().world().together([&] { trainer.schedule().load_state(learned_); });
  }

  void between_steps(Trainer& trainer, const StepReport&) override {
    const Measured& measured = trainer.measured();
    if (!trainer.schedule().has_feedback() || measured.step != trainer.progress().step) return;
    const schedule::Numbers values(measured.values.begin(), measured.values.end());
    trainer.strategy().world().together(
        [&] { trainer.schedule().observe(measured.step - trainer.schedule_begin(), values); });
    learned_ = trainer.schedule().state();
  }

  std::string state_name() const override { return "schedule"; }

  void save_state(checkpoints::Archive& archive, const std::string& group) const override {
    archive.set(group, "rules", rules_.lines);
    schedule::RunLength length = rules_.length;
    for (const auto& [name, number] : numbers_of(length)) archive.set(group, name, *number);
    for (const auto& [name, value] : learned_) archive.set(group, name, value);
  }

  void load_state(const checkpoints::Archive& archive, const std::string& group) override {
    stored_ = Rules{.lines = archive.text(group, "rules"), .length = {}};
    for (const auto& [name, number] : numbers_of(stored_->length)) {
      if (archive.has_attribute(group, name)) *number = archive.integer(group, name);
    }
    learned_.clear();
    for (const auto& [name, value] : archive.attributes_of(group)) {
      if (name.starts_with("rule") && name != "rules") learned_[name] = archive.real(group, name);
    }
  }

 private:
  static constexpr std::size_t kPlaces = 100;  // of a preview

  /// After a restart. The rules that hold go on as if they had from the first step, and what was learned stays where it
  /// is still asked for.
  void go_on(Trainer& trainer) {
    const bool is_edited = one_a_line(trainer.schedule_rules()) != stored_->lines;
    std::string news = is_edited ? "sched.rule differs from the checkpoint's" : "";
    if (!is_edited && is_other_with(trainer, stored_->length)) {
      news = difference(stored_->length, trainer.schedule_length());
    }
    if (!news.empty()) follow_policy(trainer, news);
    try {
      trainer.schedule().load_state(learned_);
    } catch (const ConfigError& error) {
      log::warning(std::string(error.what()) + "; it is learned anew");
    }
  }

  /// Whether the rules that are given would come to something else in the rest of a run of `length`.
  bool is_other_with(Trainer& trainer, const schedule::RunLength& length) const {
    const std::vector<std::string> rules = trainer.schedule_rules();
    const schedule::RunLength own_length = trainer.schedule_length();
    const std::vector<optim::Options> own = preview(trainer);
    try {
      trainer.follow(rules, length);
    } catch (const ConfigError&) {  // a rule that begins behind its end
      return true;
    }
    const bool is_other = preview(trainer) != own;
    trainer.follow(rules, own_length);
    return is_other;
  }

  /// The options of every group at even distances until the end of the run.
  std::vector<optim::Options> preview(Trainer& trainer) const {
    std::vector<optim::Options> seen;
    for (std::size_t place = 0; place < kPlaces; ++place) {
      const std::int64_t step = step_at(trainer, place) - trainer.schedule_begin();
      for (std::size_t i = 0; i < bases_.size(); ++i) {
        seen.push_back(bases_[i]);
        trainer.schedule().apply(step, groups_of(trainer)[i].name, bases_[i], seen.back());
      }
    }
    return seen;
  }

  static std::int64_t step_at(const Trainer& trainer, std::size_t place) {
    const std::int64_t left = trainer.progress().total_steps - trainer.progress().step;
    const auto ahead = static_cast<double>(left) * static_cast<double>(place) / static_cast<double>(kPlaces);
    return trainer.progress().step + static_cast<std::int64_t>(ahead);
  }

  void follow_policy(Trainer& trainer, const std::string& news) const {
    const bool is_root = trainer.strategy().world().is_root();
    if (keeps_stored_) {
      if (is_root) log::warning(news + "; the checkpoint's schedule holds, as resume.schedule says");
      trainer.follow(lines_of(stored_->lines), stored_->length);
    } else if (is_root) {
      log::warning(news + "; from step " + std::to_string(trainer.progress().step) +
                   " on the schedule given now holds, as if it had from the first step "
                   "(resume.schedule=checkpoint keeps the old one)");
    }
  }

  void set_options(Trainer& trainer) const {
    const std::int64_t step = trainer.progress().step - trainer.schedule_begin();
    std::vector<optim::ParamGroup>& groups = groups_of(trainer);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      groups[i].options["lr"] = groups[i].base_lr;
      trainer.schedule().apply(step, groups[i].name, bases_[i], groups[i].options);
      require_within_limits(trainer, groups[i].name, groups[i].options, trainer.progress().step);
    }
  }

  void require_within_limits(Trainer& trainer, const std::string& group, const optim::Options& options,
                             std::int64_t step) const {
    limits_->require(options, trainer.schedule().moved(group, options), group, step);
  }

  /// A run is not begun whose schedule leads to where it cannot go, as far as can be seen from here.
  void require_within_limits(Trainer& trainer) const {
    const std::vector<optim::Options> seen = preview(trainer);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      require_within_limits(trainer, groups_of(trainer)[i % bases_.size()].name, seen[i],
                            step_at(trainer, i / bases_.size()));
    }
  }

  std::vector<optim::Options> bases_;  // of each group, as configured
  std::unique_ptr<optim::OptionLimits> limits_;
  bool keeps_stored_;
  Rules rules_;                  // that hold
  std::optional<Rules> stored_;  // of the checkpoint
  schedule::Numbers learned_;
};

}  // namespace

std::unique_ptr<Hook> schedule_hook(const std::string& policy) {
  return std::make_unique<ScheduleHook>(policy == "checkpoint");
}

}  // namespace lockstep::engine
