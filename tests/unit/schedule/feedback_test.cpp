// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/schedule/schedule.hpp>

#include <gtest/gtest.h>

namespace lockstep::schedule {
namespace feedback_test {

constexpr RunLength kLength{.total_steps = 100};

/// The value after each of the measurements, from 1.
std::vector<double> after(const std::string& options, const std::vector<double>& losses) {
  Schedule schedule = parse({"plateau,metric=loss," + options}, kLength, "test");
  std::vector<double> values;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    schedule.observe(static_cast<std::int64_t>(i), {{"loss", losses[i]}});
    values.push_back(schedule.value(static_cast<std::int64_t>(i)));
  }
  return values;
}

TEST(PlateauTest, FallsAfterMoreThanPatienceWithoutABetterOne) {
  EXPECT_EQ(after("patience=1,factor=0.5", {3, 2, 2, 2, 2, 2}), (std::vector<double>{1, 1, 1, 0.5, 0.5, 0.25}));
}

TEST(PlateauTest, CountsNothingWhileItCools) {
  EXPECT_EQ(after("patience=1,cooldown=2,factor=0.5", {1, 1, 1, 1, 1, 1, 1}),
            (std::vector<double>{1, 1, 0.5, 0.5, 0.5, 0.5, 0.25}));
}

TEST(PlateauTest, WhatIsBetterDependsOnItsMeasure) {
  EXPECT_EQ(after("patience=0,factor=0.5,threshold=0.5,measure=absolute", {4, 3, 2.25}),
            (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(after("patience=0,factor=0.5,threshold=0.5", {4, 3, 1}), (std::vector<double>{1, 0.5, 0.5}));
  EXPECT_EQ(after("patience=0,factor=0.5,better=higher", {4, 5, 5}), (std::vector<double>{1, 1, 0.5}));
}

// A part of the best one's size, also below 0: -1.05 is not better than -1 by a tenth, though it is than -0.9.
TEST(PlateauTest, NegativeNumbersGetBetterByTheirSize) {
  EXPECT_EQ(after("patience=0,factor=0.5,threshold=0.1", {-1, -1.05}), (std::vector<double>{1, 0.5}));
  EXPECT_EQ(after("patience=0,factor=0.5,threshold=0.1,measure=product", {-1, -1.05}), (std::vector<double>{1, 1}));
}

TEST(PlateauTest, StopsAtItsFloorAndAtSmallDrops) {
  EXPECT_EQ(after("patience=0,factor=0.5,floor=0.3", {1, 1, 1, 1}), (std::vector<double>{1, 0.5, 0.3, 0.3}));
  EXPECT_EQ(after("patience=0,factor=0.5,eps=0.3", {1, 1, 1}), (std::vector<double>{1, 0.5, 0.5}));
}

TEST(PlateauTest, LooksAwayOutsideOfItsWindow) {
  EXPECT_EQ(after("patience=0,factor=0.5,begin=2,end=4", {1, 1, 1, 1, 1}), (std::vector<double>{1, 1, 1, 0.5, 0.5}));
}

TEST(PlateauTest, LearnsAtTheEndOfTheRunToo) {
  Schedule schedule = parse({"plateau,metric=loss,patience=0,factor=0.5"}, kLength, "test");
  for (int i = 0; i < 2; ++i) schedule.observe(kLength.total_steps, {{"loss", 1}});
  EXPECT_EQ(schedule.value(0), 0.5);
}

TEST(PlateauTest, ItsStateIsAllThatItKnows) {
  const std::vector<std::string> rules = {"linear,start_factor=0.5,end=2", "plateau,metric=loss,patience=1,factor=0.5"};
  Schedule used = parse(rules, kLength, "test");
  for (const double loss : {3.0, 3.0, 3.0, 3.0}) used.observe(2, {{"loss", loss}});
  Schedule other = parse(rules, kLength, "test");
  EXPECT_NE(used.value(5), other.value(5));
  EXPECT_NE(used.state(), other.state());
  other.load_state(used.state());
  EXPECT_EQ(used.state(), other.state());
  EXPECT_EQ(used.value(5), other.value(5));
  for (Schedule* schedule : {&used, &other}) schedule->observe(6, {{"loss", 3}});
  EXPECT_EQ(used.value(6), 0.25);
  EXPECT_EQ(other.value(6), 0.25);
}

TEST(PlateauTest, RefusesAForeignState) {
  Schedule plain = parse({"linear"}, kLength, "test");
  EXPECT_FALSE(plain.has_feedback());
  EXPECT_TRUE(plain.state().empty());
  EXPECT_THROW(plain.load_state({{"rule0_best", 1}}), ConfigError);
  Schedule second = parse({"linear", "plateau"}, kLength, "test");
  EXPECT_THROW(second.load_state(parse({"plateau"}, kLength, "test").state()), ConfigError);
}

TEST(PlateauTest, SaysWhatThereIsToWatch) {
  Schedule schedule = parse({"plateau,metric=val/losses"}, kLength, "test");
  try {
    schedule.observe(0, {{"val/accuracy", 1}, {"val/loss", 1}});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(
        error.what(),
        "sched.rule: plateau: metric: no value named 'val/losses' is measured; choose one of: val/accuracy, val/loss");
  }
}

TEST(ApplyTest, MovesWhatTheRulesNameInTheGroupsThatTheyName) {
  const Schedule schedule = parse(
      {"constant,factor=0.5", "constant,factor=0.25,of=weight_decay,group=decay", "constant,factor=0.5,of=momentum"},
      kLength, "test");
  const Numbers bases = {{"lr", 1}, {"momentum", 0.5}, {"weight_decay", 4}};
  Numbers decay = bases;
  schedule.apply(0, "decay", bases, decay);
  EXPECT_EQ(decay, (Numbers{{"lr", 0.5}, {"momentum", 0.25}, {"weight_decay", 1}}));
  Numbers no_decay = bases;
  schedule.apply(0, "no_decay", bases, no_decay);
  EXPECT_EQ(no_decay, (Numbers{{"lr", 0.5}, {"momentum", 0.25}, {"weight_decay", 4}}));
}

TEST(ApplyTest, MomentumIsTheFirstBeta) {
  const Schedule schedule = parse({"constant,factor=0.5,of=momentum"}, kLength, "test");
  const Numbers bases = {{"lr", 1}, {"beta1", 0.5}, {"beta2", 0.75}};
  Numbers options = bases;
  schedule.apply(0, "all", bases, options);
  EXPECT_EQ(options, (Numbers{{"lr", 1}, {"beta1", 0.25}, {"beta2", 0.75}}));
}

TEST(ApplyTest, StatesWhichValueItChanges) {
  const Schedule schedule =
      parse({"constant", "constant,of=momentum", "constant,of=eps,group=b", "cosine"}, kLength, "");
  using Names = std::vector<std::string>;
  EXPECT_EQ(schedule.moved("a", {{"lr", 1}, {"beta1", 0.5}, {"eps", 1}}), (Names{"lr", "beta1"}));
  EXPECT_EQ(schedule.moved("b", {{"lr", 1}, {"momentum", 0.5}, {"eps", 1}}), (Names{"lr", "momentum", "eps"}));
}

TEST(ApplyTest, RefusesAnOptionThatTheOptimizerDoesNotHave) {
  const Schedule schedule = parse({"constant,of=nonsense"}, kLength, "test");
  Numbers options = {{"lr", 1}};
  const Numbers bases = options;
  EXPECT_THROW(schedule.apply(0, "all", bases, options), ConfigError);
}

TEST(ApplyTest, RefusesAGroupThatThereIsNot) {
  const Schedule schedule = parse({"linear", "constant,group=decay"}, kLength, "test");
  EXPECT_NO_THROW(schedule.require_groups({"decay", "no_decay"}));
  EXPECT_THROW(schedule.require_groups({"all"}), ConfigError);
}

}  // namespace feedback_test
}  // namespace lockstep::schedule
