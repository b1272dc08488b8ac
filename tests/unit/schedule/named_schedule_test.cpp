// SPDX-License-Identifier: BSD-3-Clause
// A schedule by name is the schedule of the rules that it stands for.
#include "schedule/named_schedule.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/schedule/schedule.hpp>

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace lockstep::schedule {
namespace named_schedule_test {

using Settings = std::map<std::string, std::string>;
using Rules = std::vector<std::string>;

constexpr RunLength kLength{.total_steps = 900, .steps_per_epoch = 10, .samples_per_step = 4};

Section sched_with(const Settings& settings) {
  Section sched = Section::with_defaults("sched", sched_keys());
  for (const auto& [key, value] : settings) sched.set(key, value, "a.ini:3");
  return sched;
}

Rules rules_with(const Settings& settings) { return rules_of(sched_with(settings)); }

std::string refusal(const Settings& settings) {
  try {
    rules_with(settings);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

/// The values of the run with each of these, and 100 steps behind its end.
void expect_same(const Settings& settings, const Rules& rules) {
  const Schedule named = parse(rules_with(settings), kLength, "");
  const Schedule written = parse(rules, kLength, "");
  for (std::int64_t step = 0; step < kLength.total_steps + 100; ++step) {
    ASSERT_EQ(named.value(step, {.base = 0.3}), written.value(step, {.base = 0.3})) << step;
  }
}

TEST(NamedScheduleTest, WithoutANameTheRulesCount) {
  EXPECT_TRUE(rules_with({}).empty());
  EXPECT_EQ(rules_with({{"rule", "cosine"}}), Rules{"cosine"});
  EXPECT_EQ(origin_of_rules(sched_with({{"rule", "cosine"}})), "a.ini:3");
}

TEST(NamedScheduleTest, EqualsTheRulesThatItStandsFor) {
  expect_same({{"name", "constant"}}, {});
  expect_same({{"name", "constant"}, {"warmup", "100"}}, {"linear,start_factor=0.01,end=100"});
  expect_same({{"name", "cosine"}}, {"cosine"});
  expect_same({{"name", "cosine"}, {"warmup", "100"}, {"warmup_factor", "0.1"}, {"final_factor", "0.2"}},
              {"linear,start_factor=0.1,end=100", "cosine,begin=100,final_factor=0.2"});
  expect_same({{"name", "cosine"}, {"warmup", "2.5epochs"}},
              {"linear,end=2.5,by=epoch,smooth=true", "cosine,begin=2.5,by=epoch,smooth=true"});
  expect_same({{"name", "linear"}, {"warmup", "30"}, {"final_factor", "0.5"}},
              {"linear,end=30", "linear,begin=30,start_factor=1,end_factor=0.5"});
  expect_same({{"name", "polynomial"}, {"power", "2"}, {"final_factor", "0.1"}},
              {"polynomial,power=2,final_factor=0.1"});
  expect_same({{"name", "step"}, {"milestones", "300,600"}}, {"multistep,milestones=300,600"});
  expect_same({{"name", "step"}, {"milestones", "30epochs, 60 epochs"}, {"gamma", "0.5"}, {"warmup", "1epoch"}},
              {"linear,end=1,by=epoch,smooth=true", "step,size=30,by=epoch,gamma=0.5"});
  expect_same({{"name", "one_cycle"}}, {"one_cycle"});
}

// The recipes in tools/configs keep the values that they had as rules.
TEST(NamedScheduleTest, RecipesKeepTheirValues) {
  expect_same({{"name", "cosine"}, {"warmup", "100"}, {"warmup_factor", "0.1"}, {"final_factor", "0.01"}},
              {"linear,start_factor=0.1,end=100", "cosine,begin=100,final_factor=0.01"});
  expect_same(
      {{"name", "cosine"}, {"warmup", "100"}, {"warmup_factor", "0.00990099009900990"}, {"final_factor", "0.1"}},
      {"linear,start_factor=0.00990099009900990,end=100", "cosine,begin=100,final_factor=0.1"});
  expect_same({{"name", "step"}, {"milestones", "30epochs,60epochs"}}, {"step,size=30,gamma=0.1,by=epoch"});
}

// Lengths in epochs are the same positions as in steps.
TEST(NamedScheduleTest, EpochsAreSteps) {
  const Schedule in_epochs = parse(rules_with({{"name", "cosine"}, {"warmup", "5epochs"}}), kLength, "");
  const Schedule in_steps = parse(rules_with({{"name", "cosine"}, {"warmup", "50"}}), kLength, "");
  for (std::int64_t step = 0; step < kLength.total_steps; ++step) {
    ASSERT_NEAR(in_epochs.value(step), in_steps.value(step), 1e-14) << step;  // positions are rounded differently
  }
  EXPECT_EQ(in_epochs.value(50), 1);
  EXPECT_EQ(in_epochs.value(0), 0.01);
}

TEST(NamedScheduleTest, RefusesWhatItCannotBe) {
  const std::string length = "' is neither a number of steps, such as 100, nor of epochs, such as 5epochs";
  for (const char* const bad : {"", "x", "1.5", "-1", "epochs", "-1epochs", "5 e", "nan", "inf epochs"}) {
    EXPECT_EQ(refusal({{"name", "cosine"}, {"warmup", bad}}), "sched.warmup (a.ini:3): '" + std::string(bad) + length);
  }
  EXPECT_EQ(refusal({{"name", "step"}}),
            "sched.name (a.ini:3): step requires sched.milestones, such as 30epochs,60epochs");
  EXPECT_EQ(refusal({{"name", "step"}, {"milestones", "30,x"}}), "sched.milestones (a.ini:3): 'x" + length);
  EXPECT_EQ(refusal({{"name", "step"}, {"milestones", "30epochs,60"}}),
            "sched.milestones (a.ini:3): write all of them in steps, or all of them in epochs");
  EXPECT_EQ(refusal({{"name", "step"}, {"milestones", "60,30"}}),
            "sched.milestones (a.ini:3): each must be at least as large as the one before");
  EXPECT_EQ(refusal({{"name", "step"}, {"milestones", "30,30"}}), "");
  EXPECT_EQ(refusal({{"name", "cosine"}, {"rule", "step,size=3"}}),
            "sched.rule (a.ini:3) cannot be combined with sched.name=cosine (a.ini:3); set sched.name=none, or remove "
            "the rules");
}

TEST(NamedScheduleTest, MessagesAboutItsRulesNameIt) {
  const Section sched = sched_with({{"name", "cosine"}, {"warmup", "1000"}});
  const Schedule schedule = parse(rules_of(sched), kLength, origin_of_rules(sched));
  EXPECT_EQ(
      schedule.unused(),
      Rules{"a.ini:3: sched.name=cosine: sched.rule 'cosine,begin=1000,final_factor=0': not used: begin (1000) is "
            "not less than the end of the run (900)"});
}

}  // namespace named_schedule_test
}  // namespace lockstep::schedule
