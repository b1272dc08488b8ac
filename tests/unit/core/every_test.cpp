// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/every.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

namespace lockstep {
namespace every_test {

constexpr std::int64_t kStepsPerEpoch = 3;

RunPosition position_at(std::int64_t step, std::int64_t total_steps = 12) {
  return {
      .step = step, .total_steps = total_steps, .epoch = step / kStepsPerEpoch, .step_in_epoch = step % kStepsPerEpoch};
}

/// The steps of a run of 12 steps, in epochs of 3, after which the action is due.
std::vector<int> due_steps(const std::string& text) {
  const Every every = Every::parse(text, "x.every");
  std::vector<int> due;
  for (int step = 0; step <= 12; ++step) {
    if (every.is_due(position_at(step))) due.push_back(step);
  }
  return due;
}

std::string refusal(const std::string& text, const Every::Accepted& accepted = {}) {
  try {
    Every::parse(text, "x.every (test)", accepted);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

using Steps = std::vector<int>;

TEST(EveryTest, StepsAndEpochsCountFromOne) {
  EXPECT_EQ(due_steps("1"), (Steps{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(due_steps("5"), (Steps{5, 10}));
  EXPECT_EQ(due_steps("12"), Steps{12});
  EXPECT_EQ(due_steps("13"), Steps());
  EXPECT_EQ(due_steps("1epochs"), (Steps{3, 6, 9, 12}));
  EXPECT_EQ(due_steps("1epoch"), (Steps{3, 6, 9, 12}));
  EXPECT_EQ(due_steps("3epochs"), Steps{9});
  EXPECT_EQ(due_steps(" 3 epochs "), Steps{9});
}

TEST(EveryTest, TheEndIsTheLastStep) {
  EXPECT_EQ(due_steps("end"), Steps{12});
  EXPECT_EQ(due_steps("never"), Steps());
  EXPECT_FALSE(Every::parse("end", "").is_due({.step = 12, .total_steps = 13}));
  EXPECT_FALSE(Every::parse("end", "").is_due({.step = 12}));  // the length is not known
}

TEST(EveryTest, TimesAreJoined) {
  EXPECT_EQ(due_steps("5+end"), (Steps{5, 10, 12}));
  EXPECT_EQ(due_steps("4 + 1epochs"), (Steps{3, 4, 6, 8, 9, 12}));
  const Every all = Every::parse("4+2epochs+10min+end", "");
  EXPECT_EQ(all.first(), (Repetition{.steps = 4, .epochs = 2, .seconds = 600, .is_at_end = true}));
}

// A part holds from its step or epoch on, which it includes.
TEST(EveryTest, TimesChange) {
  EXPECT_EQ(due_steps("5 then 2@11"), (Steps{5, 10, 12}));
  EXPECT_EQ(due_steps("4 then 3@6 then 1@11"), (Steps{4, 6, 9, 11, 12}));
  EXPECT_EQ(due_steps("never then 2@7"), (Steps{8, 10, 12}));
  EXPECT_EQ(due_steps("1epochs then never@3epochs"), (Steps{3, 6}));
  EXPECT_EQ(due_steps("never then 1epochs@3epochs"), (Steps{9, 12}));
  EXPECT_EQ(due_steps("never then 1@4epochs"), (Steps{10, 11, 12}));  // the steps of the fourth epoch
  EXPECT_EQ(due_steps("2epochs then 2@8"), (Steps{6, 8, 10, 12}));
}

TEST(EveryTest, UnitsOfTime) {
  const auto seconds = [](const std::string& text) { return Every::parse(text, "").first().seconds; };
  EXPECT_EQ(seconds("30s"), 30);
  EXPECT_EQ(seconds("10min"), 600);
  EXPECT_EQ(seconds("1h"), 3600);
  EXPECT_EQ(seconds("0.5h"), 1800);
  EXPECT_EQ(seconds("0.25 s"), 0.25);
  const Every changing = Every::parse("10min then never@5", "");
  EXPECT_EQ(changing.seconds_at({.step = 4, .step_in_epoch = 1}), 600);
  EXPECT_EQ(changing.seconds_at({.step = 5, .step_in_epoch = 2}), 0);
  EXPECT_EQ(due_steps("1h"), Steps());
  EXPECT_TRUE(changing.has_times());
  EXPECT_FALSE(Every::parse("5+end", "").has_times());
}

TEST(EveryTest, ATextIsReadBack) {
  for (const char* const text :
       {"500", "2epochs", "10min", "90s", "1h", "0.5s", "end", "never", "500+2epochs+15min+end", "500 then 100@10000",
        "1epochs then 5epochs+end@10epochs then never@20epochs"}) {
    EXPECT_EQ(Every::parse(text, "").text(), text);
  }
  EXPECT_EQ(Every::parse("1epoch + 60s", "").text(), "1epochs+1min");
  EXPECT_EQ(Every::parse("7200s", "").text(), "2h");
}

TEST(EveryTest, WhatAPatternIs) {
  EXPECT_TRUE(Every::parse("never", "").is_never());
  EXPECT_TRUE(Every::parse("never then never@5", "").is_never());
  EXPECT_FALSE(Every::parse("never then 2@5", "").is_never());
  EXPECT_FALSE(Every::parse("end", "").is_never());
  EXPECT_EQ(Every(), Every::parse("never", ""));
  EXPECT_EQ(Every(3), Every::parse("3", ""));
  EXPECT_TRUE(Every(3).is_step_count());
  for (const char* const other : {"never", "3+end", "1epochs", "3 then 4@5"}) {
    EXPECT_FALSE(Every::parse(other, "").is_step_count()) << other;
  }
}

TEST(EveryTest, StepsBetweenTwoActions) {
  const auto steps_at = [](const std::string& text, std::int64_t step) {
    return Every::parse(text, "").steps_at(position_at(step), kStepsPerEpoch);
  };
  EXPECT_EQ(steps_at("7", 1), 7);
  EXPECT_EQ(steps_at("2epochs", 1), 6);
  EXPECT_EQ(steps_at("7+2epochs", 1), 6);
  EXPECT_EQ(steps_at("5+2epochs", 1), 5);
  EXPECT_EQ(steps_at("7 then 2@10", 9), 7);
  EXPECT_EQ(steps_at("7 then 2@10", 10), 2);
}

TEST(EveryTest, ASentenceForEachMistake) {
  const std::string forms =
      "a number of steps (500), of epochs (2epochs), a time (30s, 10min or 1h), end or never; several are joined by +, "
      "and a change is '500 then 100@10000'";
  const auto expected = [](const std::string& text, const std::string& reason) {
    return "x.every (test): '" + text + "' is not accepted: " + reason;
  };
  for (const std::string text : {"x", "500steps", "1e3", "0.5epochs", "1.5", "10m", "s", "ends"}) {
    EXPECT_EQ(refusal(text), expected(text, "'" + text + "' is not " + forms));
  }
  EXPECT_EQ(refusal(""), expected("", "'' is not " + forms));
  EXPECT_EQ(refusal("500+"), expected("500+", "'' is not " + forms));
  EXPECT_EQ(refusal("500,1000:100"), expected("500,1000:100", "'500,1000:100' is not " + forms));
  for (const std::string text : {"0", "-5", "0epochs", "1000000000001"}) {
    EXPECT_EQ(refusal(text),
              expected(text, "'" + text + "' must be at least 1 and at most 1000000000000; never = not at all"));
  }
  EXPECT_EQ(refusal("1000000000000"), "");
  for (const std::string text : {"0s", "-1h", "1000000001s"}) {
    EXPECT_EQ(refusal(text), expected(text, "'" + text + "' must be more than 0 and at most 1e9 seconds"));
  }
  EXPECT_EQ(refusal("1000000000s"), "");
  EXPECT_EQ(refusal("500+100"), expected("500+100", "'100' is the second number of the same unit; use one of them"));
  EXPECT_EQ(refusal("1h+1s"), expected("1h+1s", "'1s' is the second number of the same unit; use one of them"));
  EXPECT_EQ(refusal("5+never"), expected("5+never", "'never' cannot be joined with other times"));
  EXPECT_EQ(refusal("5@10"),
            expected("5@10", "the first part must not contain '@', because it applies from the first step on"));
  EXPECT_EQ(refusal("5 then 2"),
            expected("5 then 2",
                     "a part after 'then' needs the step or epoch from which it applies, such as 100@10000 or "
                     "1epochs@5epochs"));
  EXPECT_EQ(refusal("5 then 2@0"), expected("5 then 2@0", "a number after '@' must be at least 1"));
  EXPECT_EQ(refusal("5 then 2@9 then 1@9"), expected("5 then 2@9 then 1@9", "the numbers after '@' must increase"));
  EXPECT_EQ(refusal("5 then 2@10min"),
            "x.every (test): '5 then 2@10min': '10min' is neither a step, such as 100, nor an epoch, such as 2epochs");
}

TEST(EveryTest, AnActionAcceptsSomeOfIt) {
  EXPECT_EQ(refusal("5+1epochs+end", {.times = false, .never = false}), "");
  EXPECT_EQ(refusal("10min", {.times = false}),
            "x.every (test): '10min' is not accepted: '10min' is a time, but this action follows steps or epochs; use "
            "for example 500 or 1epochs");
  EXPECT_EQ(refusal("5 then never@9", {.never = false}),
            "x.every (test): '5 then never@9' is not accepted: this action cannot be left out; use 'end' or a large "
            "number of steps");
}

TEST(BeginTest, AStepOrAnEpoch) {
  EXPECT_EQ(Begin::parse("100", ""), (Begin{.number = 100}));
  EXPECT_EQ(Begin::parse(" 2epochs ", ""), (Begin{.number = 2, .is_epoch = true}));
  EXPECT_EQ(Begin::parse("1epoch", ""), (Begin{.number = 1, .is_epoch = true}));
  EXPECT_EQ(Begin::parse("0", ""), Begin());
  EXPECT_EQ(Begin::parse("0epochs", ""), Begin());
  EXPECT_EQ(Begin::parse("2epochs", "").text(), "2epochs");
  for (const std::string text : {"", "x", "-1", "1.5", "10min", "end", "2epochs+1", "1000000000001"}) {
    try {
      Begin::parse(text, "x.begin (test)");
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.what(),
                "x.begin (test): '" + text + "' is neither a step, such as 100, nor an epoch, such as 2epochs");
    }
  }
}

TEST(BeginTest, IsReachedByTheFirstStepOfIt) {
  const auto first_reached = [](const Begin& begin) {
    std::int64_t step = 0;
    while (!begin.is_reached(position_at(step))) ++step;
    return step;
  };
  EXPECT_EQ(first_reached({}), 0);
  for (const Begin& begin : {Begin{.number = 1}, Begin{.number = 5}, Begin{.number = 1, .is_epoch = true},
                             Begin{.number = 3, .is_epoch = true}}) {
    EXPECT_EQ(first_reached(begin), begin.first_step(kStepsPerEpoch)) << begin.text();
  }
  EXPECT_EQ((Begin{.number = 3, .is_epoch = true}).first_step(kStepsPerEpoch), 7);
}

TEST(EveryOfIntervalsTest, ListsOfEarlierVersions) {
  EXPECT_EQ(every_of_intervals("500", ""), "500");
  EXPECT_EQ(every_of_intervals("500,10000:100", ""), "500 then 100@10000");
  EXPECT_EQ(every_of_intervals("1,2:3,4:6", "epochs"), "1epochs then 3epochs@2epochs then 6epochs@4epochs");
  EXPECT_EQ(every_of_intervals("0", ""), "never");
  EXPECT_EQ(every_of_intervals("0,7:2", ""), "never then 2@7");
  for (const char* const malformed : {"", "x", "5,", "5,2", "5:2", "5,x:2", "5,11:", "-1"}) {
    EXPECT_EQ(every_of_intervals(malformed, ""), "") << malformed;
  }
}

}  // namespace every_test
}  // namespace lockstep
