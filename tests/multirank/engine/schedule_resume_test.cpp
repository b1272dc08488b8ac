// SPDX-License-Identifier: BSD-3-Clause
// A run that continues in the middle of a schedule, and one whose schedule was edited or that was prolonged.
#include <lockstep/core/error.hpp>
#include <lockstep/schedule/schedule.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "engine/resume/run_state.hpp"
#include "small_run.hpp"

namespace lockstep::engine {
namespace schedule_resume_test {

using checkpoints::Archive;

const Settings kBase = {{"model.name", "mlp"},
                        {"model.hidden", "8"},
                        {"data.train_size", "60"},
                        {"optim.name", "adamw"},
                        {"optim.lr", "0.01"},
                        {"optim.weight_decay", "0.1"},
                        {"optim.no_decay", "norms_biases"},
                        {"train.global_batch_size", "12"},
                        {"train.max_steps", "12"}};

/// Measures a loss that gets worse, notes what the first group is updated with, and ends the run after `last` steps.
class StepHook : public Hook {
 public:
  StepHook(std::int64_t last, std::vector<double>& rates) : last_(last), rates_(&rates) {}
  void before_step(RunView& view) override {
    if (view.progress.step + 1 == last_) view.requests.end();
  }
  void after_step(RunView& view, const StepReport& report) override {
    rates_->push_back(report.lr);
    view.report({.kind = "eval", .values = {{"val/loss", static_cast<double>(view.progress.step)}}});
  }

 private:
  std::int64_t last_;
  std::vector<double>* rates_;
};

struct ScheduledRun : SmallRun {
  ScheduledRun(const mpi::Communicator& world, const Settings& settings, std::int64_t last = -1)
      : SmallRun(world, with(kBase, settings)) {
    trainer.add_hook(Priority::normal, std::make_unique<StepHook>(last, rates));
  }
  std::vector<double> rates;  // rates of each step
};

template <class T>
std::vector<T> from(const std::vector<T>& all, std::size_t first) {
  return {all.begin() + static_cast<std::ptrdiff_t>(first), all.end()};
}

class ScheduleResumeTest : public ::testing::Test {
 protected:
  mpi::Communicator world_ = mpi::Communicator::world();
};

struct Row {
  std::string curve;
  Settings rules;
};

Settings rule(const std::string& text) { return {{"sched.rule", text}}; }

/// One for every curve, each of which moves after step 5, too.
std::vector<Row> rows() {
  return {{"constant", rule("constant,factor=0.5,begin=3,end=8")},
          {"linear", rule("linear,start_factor=0.1")},
          {"quadratic", rule("quadratic,start_factor=0.1")},
          {"exponential", rule("exponential,gamma=0.9,of=momentum")},
          {"step", rule("step,size=3,gamma=0.5")},
          {"multistep", rule("multistep,milestones=2,7,gamma=0.1")},
          {"cosine", rule("cosine,by=epoch,smooth=true,final_factor=0.1")},
          {"polynomial", rule("polynomial,power=2,group=decay")},
          {"inverse_sqrt", rule("inverse_sqrt,warmup=4")},
          {"wsd", rule("wsd,warmup=2,decay=6")},
          {"one_cycle", with(rule("one_cycle,base=0.05"), rule("one_cycle,of=weight_decay,shape=linear"))},
          {"cyclic", rule("cyclic,up=2,down=3")},
          {"cosine_restart", rule("cosine_restart,periods=4,8,weights=1,0.5,final_factor=0.1")},
          {"composite", rule("composite,curves=(linear | cosine),lengths=0.25,0.75")},
          {"plateau", rule("plateau,patience=1,factor=0.5")}};
}

TEST_F(ScheduleResumeTest, EveryCurveContinuesBitForBit) {
  std::set<std::string> tested;
  for (const Row& row : rows()) {
    tested.insert(row.curve);
    ScheduledRun straight(world_, row.rules);
    straight.trainer.train();
    ScheduledRun first(world_, row.rules, 5);
    EXPECT_EQ(first.trainer.train(), Outcome::ended);
    const Archive archive = capture(first.trainer, "", true);
    ScheduledRun resumed(world_, row.rules);
    restore(resumed.trainer, archive);
    resumed.trainer.train();
    EXPECT_EQ(resumed.losses, from(straight.losses, 5)) << row.curve;
    EXPECT_EQ(resumed.rates, from(straight.rates, 5)) << row.curve;
    for (std::size_t g = 0; g < 2; ++g) {
      EXPECT_EQ(resumed.updates.first().optimizer().groups()[g].options,
                straight.updates.first().optimizer().groups()[g].options)
          << row.curve;
    }
  }
  for (const schedule::Curve& curve : schedule::builtin_curves())
    EXPECT_TRUE(tested.contains(curve.name)) << curve.name;
}

const Settings kPrevious = rule("cosine,final_factor=0.1");
const Settings kEdited = rule("exponential,gamma=0.9");

class EditedScheduleTest : public ScheduleResumeTest {
 protected:
  /// The rates of steps 6 to 11 of a run that was one of 6 steps with kPrevious.
  std::vector<double> go_on(const Settings& settings) {
    ScheduledRun first(world_, with(kPrevious, {{"train.max_steps", "6"}}));
    first.trainer.train();
    const Archive archive = capture(first.trainer, "", true);
    ScheduledRun resumed(world_, settings);
    restore(resumed.trainer, archive);
    resumed.trainer.train();
    return resumed.rates;
  }
  std::vector<double> straight(const Settings& settings) {
    ScheduledRun run(world_, settings);
    run.trainer.train();
    return from(run.rates, 6);
  }
};

TEST_F(EditedScheduleTest, TheConfiguredScheduleHoldsAsIfFromTheFirstStep) {
  EXPECT_EQ(go_on(kPrevious), straight(kPrevious));  // prolonged
  EXPECT_EQ(go_on(kEdited), straight(kEdited));
  EXPECT_NE(go_on(kEdited), go_on(kPrevious));
}

// The cosine of 6 steps is at its end.
TEST_F(EditedScheduleTest, OrTheOldOneHoldsOn) {
  const Settings keep = {{"resume.schedule", "checkpoint"}};
  const std::vector<double> over(6, 0.01 * 0.1);
  EXPECT_EQ(go_on(with(kPrevious, keep)), over);
  EXPECT_EQ(go_on(with(kEdited, keep)), over);
}

TEST_F(EditedScheduleTest, TheNextCheckpointHoldsTheValuesInUse) {
  const Settings keep = with(kEdited, {{"resume.schedule", "checkpoint"}});
  ScheduledRun first(world_, with(kPrevious, {{"train.max_steps", "6"}}));
  first.trainer.train();
  ScheduledRun second(world_, keep, 9);
  restore(second.trainer, capture(first.trainer, "", true));
  second.trainer.train();
  ScheduledRun third(world_, keep);
  restore(third.trainer, capture(second.trainer, "", true));
  third.trainer.train();
  EXPECT_EQ(third.rates, std::vector<double>(3, 0.01 * 0.1));
}

TEST_F(EditedScheduleTest, ToKeepItAndToStartAgainExcludeEachOther) {
  const Sections sections = sections_of({{"resume.schedule", "checkpoint"}, {"resume.reset", "sched"}});
  EXPECT_THROW(ResumeSettings::from(sections), ConfigError);
}

}  // namespace schedule_resume_test
}  // namespace lockstep::engine
