// SPDX-License-Identifier: BSD-3-Clause
// What a rule is refused for: each row is one misuse, and what the sentence says of it. Numbers are those of the cases,
// 8 of the strategy and 10 of the training loop.
#include <lockstep/core/error.hpp>
#include <lockstep/schedule/schedule.hpp>

#include <gtest/gtest.h>

namespace lockstep::schedule {
namespace misuse_test {

constexpr RunLength kLength{.total_steps = 40, .steps_per_epoch = 4, .samples_per_step = 8};

struct Misuse {
  std::string rule;
  std::string sentence;  // behind origin and rule
};

void expect_refused(const std::vector<Misuse>& rows) {
  for (const auto& [rule, sentence] : rows) {
    const std::string expected = "a.ini:3: sched.rule '" + rule + "': " + sentence;
    try {
      parse({rule}, kLength, "a.ini:3");
      ADD_FAILURE() << rule << " was taken";
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, expected.size()), expected) << error.what();
    }
  }
}

TEST(MisuseTest, OfWhatEveryRuleHas) {
  expect_refused({
      {"", "'' is unknown; choose one of: constant, linear"},
      {"warmup,method=cubic", "'warmup' is unknown"},           // 10.2
      {"linear,begin=-1", "begin: '-1' is not a number >= 0"},  // 8.1.1
      {"linear,begin=nan", "begin: 'nan' is not a number >= 0"},
      {"linear,end=0", "begin (0) must be less than end (0)"},
      {"linear,end=-0.5", "end: must be -1 or at least 0"},
      {"linear,end=-2", "end: '-2' is not a number >= -1"},
      {"linear,by=weeks", "by: 'weeks' is not one of: step, epoch"},  // 10.5
      {"linear,smooth=maybe", "smooth: 'maybe' is not true or false"},
      {"constant,base=inf", "base: 'inf' is not a number"},
      {"linear,end=(3", "the numbers of '(' and ')' differ"},
      {"composite,curves=(linear", "the numbers of '(' and ')' differ"},
      {"composite,curves=(linear | ),lengths=0.5,0.5", "'': '' is unknown"},
      {"composite,curves=(linear | cosin),lengths=0.5,0.5", "'cosin': 'cosin' is unknown"},
      {"composite,curves=(linear | cosine),lengths=1.5,-0.5", "lengths: '1.5,-0.5' is not numbers >= 0"},
      {"composite,curves=(linear | step,by=epoch),lengths=0.5,0.5", "'step,by=epoch': key 'by' is unknown"},
      {"composite,curves=(linear,end=2 | linear,begin=2),lengths=0.5,0.5",
       "'linear,begin=2': begin (2) must be less than end (1, the end of the run)"},
  });
}

TEST(MisuseTest, OfCurves) {
  expect_refused({
      {"constant,factor=1.5", "factor: '1.5' is not a number in [0, 1]"},  // 8.2.3
      {"constant,factor=-0.5", "factor: '-0.5' is not a number in [0, 1]"},
      {"linear,start_factor=-0.1", "start_factor: '-0.1' is not a number in [0, 1]"},  // 8.2.4
      {"linear,end_factor=1.5", "end_factor: '1.5' is not a number in [0, 1]"},
      {"exponential,gamma=0", "gamma: '0' is not a number > 0"},  // 10.1
      {"exponential,gamma=-0.9", "gamma: '-0.9' is not a number > 0"},
      {"step,size=0", "size: '0' is not a number > 0"},
      {"step,size=-3", "size: '-3' is not a number > 0"},
      {"step,size=3,gamma=0", "gamma: '0' is not a number > 0"},
      {"multistep,milestones=-1", "milestones: '-1' is not numbers >= 0"},
      {"multistep,values=", "milestones: set at least one"},
      {"multistep,values=1,2,3,milestones=5", "values: set one more than there are"},
      {"multistep,values=1,2,milestones=0", "milestones: between values each must be"},
      {"cosine,length=0", "length: '0' is not a number > 0"},  // 8.2.6
      {"polynomial,power=-1", "power: '-1' is not a number >= 0"},
      {"polynomial,floor=0.1,final_factor=0.1", "floor and final_factor cannot be combined"},
      {"inverse_sqrt,warmup=0", "warmup: '0' is not a number > 0"},     // 10.4
      {"one_cycle,rise=1.5", "rise: '1.5' is not a number in [0, 1]"},  // 8.2.9
      {"one_cycle,rise=-0.1", "rise: '-0.1' is not a number in [0, 1]"},
      {"one_cycle,shape=cubic", "shape: 'cubic' is not one of: cosine, linear"},
      {"one_cycle,end=-5", "end: '-5' is not a number >= -1"},
      {"one_cycle,start_factor=-1", "start_factor: '-1' is not a number >= 0"},
      {"cyclic,up=0", "up: the length must be positive"},
      {"cyclic,up=1e-300", "up: the length must be positive"},
      {"cosine_restart,floor=0,periods=0", "periods: '0' is not numbers > 0"},  // 10.4
      {"cosine_restart,floor=0,periods=4,wave=third", "wave: 'third' is not one of: half, full"},
      {"cosine_restart,floor=0,periods=4,weights=1,1", "weights: set one per period"},
      {"cosine_restart,floor=0,final_factor=0,periods=4", "floor and final_factor cannot be combined"},
      {"cosine_restart,floor=0,periods=1e-300,grow=1", "periods: the last one is too short"},
      {"cosine_restart,floor=0,periods=4,1e-300,grow=2", "periods: the last one is too short"},
  });
}

// Case 8.2.10.
TEST(MisuseTest, OfPlateau) {
  expect_refused({
      {"plateau,factor=1", "factor: must be less than 1"},
      {"plateau,factor=-0.5", "factor: '-0.5' is not a number in [0, 1]"},
      {"plateau,threshold=-1e-4", "threshold: '-1e-4' is not a number >= 0"},
      {"plateau,measure=rel", "measure: 'rel' is not one of: relative, absolute, product"},
      {"plateau,better=smaller", "better: 'smaller' is not one of: auto, lower, higher"},
      {"plateau,metric=val/recall", "metric: the name 'val/recall' does not determine whether lower or higher"},
      {"plateau,patience=-1", "patience: '-1' is not a number >= 0"},
      {"plateau,cooldown=-1", "cooldown: '-1' is not a number >= 0"},
      {"plateau,eps=-1", "eps: '-1' is not a number >= 0"},
      {"plateau,floor=0.1,0.2", "floor: '0.1,0.2' is not a number"},
  });
}

}  // namespace misuse_test
}  // namespace lockstep::schedule
