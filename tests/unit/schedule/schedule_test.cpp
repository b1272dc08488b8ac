// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/schedule/schedule.hpp>

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::schedule {
namespace schedule_test {

constexpr std::int64_t kTotalSteps = 100;

Schedule curve(const std::string& rule) { return parse({rule}, {.total_steps = kTotalSteps}, "command line"); }

std::vector<double> first(std::int64_t count, const Schedule& schedule) {
  std::vector<double> factors;
  for (std::int64_t step = 0; step < count; ++step) factors.push_back(schedule.value(step));
  return factors;
}

std::string error_of(const std::string& rule) {
  try {
    curve(rule);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ScheduleTest, NoRuleIsOneThroughout) {
  const Schedule none = parse({}, {.total_steps = kTotalSteps}, "default");
  EXPECT_EQ(none.value(0), 1.0);
  EXPECT_EQ(none.value(12345), 1.0);
}

TEST(ScheduleTest, ConstantHoldsInsideItsWindowOnly) {
  EXPECT_EQ(first(5, curve("constant,factor=0.5,begin=1,end=3")), (std::vector<double>{1, 0.5, 0.5, 1, 1}));
}

TEST(ScheduleTest, LinearReachesItsEndFactorAtEndAndStays) {
  EXPECT_EQ(first(6, curve("linear,start_factor=0.5,end=4")), (std::vector<double>{0.5, 0.625, 0.75, 0.875, 1, 1}));
  EXPECT_EQ(first(5, curve("linear,start_factor=1,end_factor=0.5,begin=1,end=3")),
            (std::vector<double>{1, 1, 0.75, 0.5, 0.5}));
}

TEST(ScheduleTest, LinearGivesOneBeforeItBegins) {
  EXPECT_EQ(first(4, curve("linear,start_factor=0.5,begin=2,end=4")), (std::vector<double>{1, 1, 0.5, 0.75}));
}

TEST(ScheduleTest, LinearMayStartAtZero) {
  EXPECT_EQ(first(3, curve("linear,start_factor=0,end=2")), (std::vector<double>{0, 0.5, 1}));
}

TEST(ScheduleTest, StepDropsEverySizeStepsCountedFromBegin) {
  EXPECT_EQ(first(7, curve("step,size=2,gamma=0.5")), (std::vector<double>{1, 1, 0.5, 0.5, 0.25, 0.25, 0.125}));
  EXPECT_EQ(first(5, curve("step,size=2,gamma=0.5,begin=1")), (std::vector<double>{1, 1, 1, 0.5, 0.5}));
}

TEST(ScheduleTest, JumpsStopAtEnd) {
  EXPECT_EQ(first(8, curve("step,size=2,gamma=0.5,end=4")), (std::vector<double>{1, 1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5}));
  EXPECT_EQ(first(6, curve("multistep,milestones=1,4,gamma=0.5,end=4")),
            (std::vector<double>{1, 0.5, 0.5, 0.5, 0.5, 0.5}));
}

TEST(ScheduleTest, MultistepDropsAtEachMilestone) {
  EXPECT_EQ(first(6, curve("multistep, milestones=1,4, gamma=0.5")),
            (std::vector<double>{1, 0.5, 0.5, 0.5, 0.25, 0.25}));
  EXPECT_EQ(first(4, curve("multistep,milestones=1,begin=2,gamma=0.5")), (std::vector<double>{1, 1, 1, 0.5}));
}

TEST(ScheduleTest, CosineFallsFromOneToItsFinalFactor) {
  const Schedule cosine = curve("cosine,begin=10,end=14,final_factor=0.5");
  EXPECT_EQ(cosine.value(0), 1.0);
  EXPECT_EQ(cosine.value(10), 1.0);
  EXPECT_NEAR(cosine.value(11), 0.75 + 0.25 * std::sqrt(0.5), 1e-15);
  EXPECT_NEAR(cosine.value(12), 0.75, 1e-15);
  EXPECT_NEAR(cosine.value(13), 0.75 - 0.25 * std::sqrt(0.5), 1e-15);
  EXPECT_EQ(cosine.value(14), 0.5);
  EXPECT_EQ(cosine.value(1000), 0.5);
}

TEST(ScheduleTest, EndDefaultsToTheEndOfTheRun) {
  const Schedule cosine = curve("cosine");
  EXPECT_NEAR(cosine.value(kTotalSteps / 2), 0.5, 1e-15);
  EXPECT_GT(cosine.value(kTotalSteps - 1), 0.0);
  EXPECT_EQ(cosine.value(kTotalSteps), 0.0);
}

TEST(ScheduleTest, RulesAreMultiplied) {
  const Schedule product =
      parse({"linear,start_factor=0.5,end=2", "step,size=1,gamma=0.5"}, {.total_steps = kTotalSteps}, "a.ini:3");
  EXPECT_EQ(first(4, product), (std::vector<double>{0.5, 0.375, 0.25, 0.125}));
}

// A pure function: asking for later steps first changes nothing, so a resumed run needs the step alone.
TEST(ScheduleTest, AnyStepMayBeAskedInAnyOrder) {
  const Schedule schedule = parse({"linear,end=10", "cosine,begin=10"}, {.total_steps = kTotalSteps}, "default");
  const double late = schedule.value(50);
  const std::vector<double> from_the_start = first(60, schedule);
  EXPECT_EQ(late, from_the_start[50]);
}

TEST(ScheduleTest, RefusesInOneSentenceThatCitesRuleAndOrigin) {
  EXPECT_EQ(error_of("cosin"),
            "command line: sched.rule 'cosin': 'cosin' is unknown; choose one of: constant, linear, quadratic, "
            "exponential, step, multistep, cosine, polynomial, inverse_sqrt, wsd, one_cycle, cyclic, cosine_restart, "
            "composite, plateau; did you mean 'cosine'?");
  EXPECT_EQ(error_of("linear,strat_factor=1"),
            "command line: sched.rule 'linear,strat_factor=1': key 'strat_factor' is unknown; did you mean "
            "'start_factor'?");
  EXPECT_EQ(error_of("linear,start_factor=2"),
            "command line: sched.rule 'linear,start_factor=2': start_factor: '2' is not a number in [0, 1]");
  EXPECT_EQ(error_of("linear,begin=5,end=5"),
            "command line: sched.rule 'linear,begin=5,end=5': begin (5) must be less than end (5)");
  EXPECT_EQ(error_of("multistep,milestones=60,30"),
            "command line: sched.rule 'multistep,milestones=60,30': milestones: each must be at least as large as the "
            "one before");
  EXPECT_EQ(error_of("multistep"), "command line: sched.rule 'multistep': milestones: set at least one, as in 30,60");
  EXPECT_EQ(error_of("step"), "command line: sched.rule 'step': size: set the distance between drops");
  EXPECT_EQ(error_of("linear,end"), "command line: sched.rule 'linear,end': 'end' does not have the form key=value");
  EXPECT_EQ(error_of("linear,end=3,end=4"), "command line: sched.rule 'linear,end=3,end=4': end is given twice");
}

TEST(ScheduleTest, ListFaultsNameTheListAsWritten) {
  EXPECT_EQ(
      error_of("multistep,milestones=30,x"),
      "command line: sched.rule 'multistep,milestones=30,x': milestones: '30,x' is not numbers >= 0, separated by "
      "commas");
}

TEST(ScheduleTest, AProgramAddsItsOwnCurve) {
  std::vector<Curve> curves = builtin_curves();
  curves.push_back({.name = "half", .help = "", .keys = {}, .make = [](const Section&, Window window) -> CurveShape {
                      return [window](double position, double value) {
                        return position < window.begin ? value : value / 2;
                      };
                    }});
  const Schedule half = parse({"half,begin=1"}, {.total_steps = kTotalSteps}, "command line", curves);
  EXPECT_EQ(first(3, half), (std::vector<double>{1, 0.5, 0.5}));
}

TEST(ScheduleTest, TheKeyTakesSeveralRules) {
  Section sched = Section::with_defaults("sched", sched_keys());
  EXPECT_TRUE(sched.texts("rule").empty());
  sched.set("rule", "linear,end=10", "a.ini");
  sched.set("rule", "cosine,begin=10", "a.ini");
  EXPECT_EQ(sched.texts("rule"), (std::vector<std::string>{"linear,end=10", "cosine,begin=10"}));
}

// A recipe for a long run can be tried with a few steps.
TEST(ScheduleTest, ARuleThatBeginsAfterTheRunIsNotUsed) {
  const RunLength length{.total_steps = 100, .steps_per_epoch = 10, .samples_per_step = 4};
  const Schedule schedule =
      parse({"linear,start_factor=0.5,end=200", "cosine,begin=100", "step,by=epoch,begin=10"}, length, "recipe.ini:3");
  EXPECT_EQ(
      schedule.unused(),
      (std::vector<std::string>{
          "recipe.ini:3: sched.rule 'cosine,begin=100': not used: begin (100) is not less than the end of the run "
          "(100)",
          "recipe.ini:3: sched.rule 'step,by=epoch,begin=10': not used: begin (10) is not less than the end of "
          "the run (10)"}));
  EXPECT_EQ(schedule.value(0), 0.5);
  EXPECT_EQ(schedule.value(100), 0.75);
  EXPECT_EQ(schedule.value(1000), 1);
  EXPECT_TRUE(parse({"cosine,begin=99"}, length, "").unused().empty());
  EXPECT_TRUE(parse({"plateau,begin=100"}, length, "").unused().empty());  // a resumed run can be longer
}

}  // namespace schedule_test
}  // namespace lockstep::schedule
