// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/engine/hooks.hpp>
#include <lockstep/engine/trainer.hpp>
#include <lockstep/log/log.hpp>

#include <string>
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

class ScheduleHook : public Hook {
 public:
  void before_train(Trainer& trainer) override {
    if (bases_.empty()) {
      for (const optim::ParamGroup& group : groups_of(trainer)) {
        bases_.push_back(group.options);
        bases_.back()["lr"] = group.base_lr;
      }
    }
    rules_ = one_a_line(trainer.schedule_rules());
    if (trainer.schedule_begin() < trainer.progress().step) go_on(trainer);
    learned_ = trainer.schedule().state();
    trainer.strategy().world().together([&] {
      std::vector<std::string> groups;
      for (const optim::ParamGroup& group : groups_of(trainer)) groups.push_back(group.name);
      trainer.schedule().require_groups(groups);
      set_options(trainer);
    });
  }

  void before_step(Trainer& trainer) override { set_options(trainer); }

  void after_step(Trainer& trainer, const StepReport&) override {
    const Measured& measured = trainer.measured();
    if (!trainer.schedule().has_feedback() || measured.step != trainer.progress().step) return;
    const schedule::Numbers values(measured.values.begin(), measured.values.end());
    trainer.strategy().world().together(
        [&] { trainer.schedule().observe(measured.step - trainer.schedule_begin(), values); });
    learned_ = trainer.schedule().state();
  }

  std::string state_name() const override { return "schedule"; }

  void save_state(checkpoints::Archive& archive, const std::string& group) const override {
    archive.set(group, "rules", rules_);
    for (const auto& [name, value] : learned_) archive.set(group, name, value);
  }

  void load_state(const checkpoints::Archive& archive, const std::string& group) override {
    rules_before_ = archive.text(group, "rules");
    was_loaded_ = true;
    learned_.clear();
    for (const auto& [name, value] : archive.attributes_of(group)) {
      if (name != "rules") learned_[name] = archive.real(group, name);
    }
  }

 private:
  /// After a restart: other rules hold from here on, and what was learned stays where it is still asked for.
  void go_on(Trainer& trainer) {
    if (!was_loaded_) return;
    if (rules_before_ != rules_) {
      log::warning("sched.rule differs from the checkpoint's; from step " + std::to_string(trainer.progress().step) +
                   " on the rules given now hold, as if they had from the first step");
    }
    try {
      trainer.schedule().load_state(learned_);
    } catch (const ConfigError& error) {
      log::warning(std::string(error.what()) + "; it is learned anew");
    }
  }

  void set_options(Trainer& trainer) const {
    const std::int64_t step = trainer.progress().step - trainer.schedule_begin();
    std::vector<optim::ParamGroup>& groups = groups_of(trainer);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      groups[i].options["lr"] = groups[i].base_lr;
      trainer.schedule().apply(step, groups[i].name, bases_[i], groups[i].options);
    }
  }

  std::vector<optim::Options> bases_;  // of each group, as configured
  std::string rules_;
  std::string rules_before_;  // of the checkpoint
  bool was_loaded_ = false;
  schedule::Numbers learned_;
};

}  // namespace

std::unique_ptr<Hook> schedule_hook() { return std::make_unique<ScheduleHook>(); }

}  // namespace lockstep::engine
