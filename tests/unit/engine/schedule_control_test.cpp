// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <gtest/gtest.h>

namespace lockstep::engine {
namespace schedule_control_test {

const schedule::RunLength kTwelveSteps = {.total_steps = 12, .steps_per_epoch = 4, .samples_per_step = 8};

ScheduleControl control_of(const std::string& rule) {
  return ScheduleControl({.rules = {rule}, .origin = "test"}, schedule::builtin_curves());
}

TEST(ScheduleControlTest, PlansTheWholeRun) {
  ScheduleControl control = control_of("linear,start_factor=1,end_factor=0");
  control.plan(kTwelveSteps);
  EXPECT_EQ(control.length().total_steps, 12);
  EXPECT_EQ(control.length().steps_per_epoch, 4);
  EXPECT_EQ(control.begin(), 0);
  const optim::ParamGroup group{.name = "all", .options = {}, .base_lr = 0.5, .parameters = {}};
  EXPECT_EQ(control.factor(0, group), 1);
  EXPECT_EQ(control.factor(6, group), 0.5);
  EXPECT_EQ(control.factor(6, {.name = "all", .options = {}, .base_lr = 0, .parameters = {}}), 0.5);
}

TEST(ScheduleControlTest, ARestartCountsFromItsStep) {
  ScheduleControl control = control_of("linear,start_factor=1,end_factor=0");
  control.restart_at(8);
  control.plan(kTwelveSteps);
  EXPECT_EQ(control.begin(), 8);
  EXPECT_EQ(control.length().total_steps, 4);
  const optim::ParamGroup group{.name = "all", .options = {}, .base_lr = 1, .parameters = {}};
  EXPECT_EQ(control.factor(8, group), 1);
  EXPECT_EQ(control.factor(10, group), 0.5);
}

TEST(ScheduleControlTest, AWrongRuleLeavesTheOldOnes) {
  ScheduleControl control = control_of("linear,start_factor=1,end_factor=0");
  control.plan(kTwelveSteps);
  EXPECT_THROW(control.follow({"nothing"}, kTwelveSteps), ConfigError);
  EXPECT_EQ(control.rules(), std::vector<std::string>{"linear,start_factor=1,end_factor=0"});
  const optim::ParamGroup group{.name = "all", .options = {}, .base_lr = 1, .parameters = {}};
  EXPECT_EQ(control.factor(6, group), 0.5);
  control.follow({"constant,factor=0.25,end=100"}, {.total_steps = 200, .steps_per_epoch = 4, .samples_per_step = 8});
  EXPECT_EQ(control.rules().size(), 1U);
  EXPECT_EQ(control.length().total_steps, 200);
  EXPECT_EQ(control.factor(6, group), 0.25);
}

TEST(ScheduleControlTest, WhatWasLearnedStaysWhenTheRunIsPlannedAgain) {
  ScheduleControl control = control_of("plateau,patience=0,factor=0.5");
  control.plan(kTwelveSteps);
  control.schedule().observe(1, {{"val/loss", 1.0}});
  control.schedule().observe(2, {{"val/loss", 2.0}});
  const schedule::Numbers learned = control.schedule().state();
  ASSERT_FALSE(learned.empty());
  control.plan({.total_steps = 24, .steps_per_epoch = 4, .samples_per_step = 8});
  EXPECT_EQ(control.schedule().state(), learned);
  EXPECT_NE(control_of("plateau,patience=0,factor=0.5").schedule().state(), learned);
}

}  // namespace schedule_control_test
}  // namespace lockstep::engine
