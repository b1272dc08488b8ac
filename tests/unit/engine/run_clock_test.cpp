// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "engine/measures/run_times.hpp"

namespace lockstep::engine {
namespace run_clock_test {

// 50 steps of 2 s with 0.5 s of other things behind each, the first ones slower.
RunClock fifty_steps(std::int64_t warmup) {
  RunClock clock(warmup);
  clock.begin(1000);
  for (int i = 0; i < 50; ++i) clock.step(i < 3 ? 10 : 2, 0.5);
  return clock;
}

TEST(RunClockTest, LeavesOutAsManyStepsAsItSays) {
  EXPECT_EQ(fifty_steps(3).speed(), "47 steps in 0:01:34 (2.0000 s a step, 25 % of it waiting for data)");
  EXPECT_EQ(fifty_steps(0).speed(), "50 steps in 0:02:04 (2.4800 s a step, 20 % of it waiting for data)");
  EXPECT_EQ(fifty_steps(49).speed(), "1 steps in 0:00:02 (2.0000 s a step, 25 % of it waiting for data)");
  EXPECT_EQ(fifty_steps(50).speed(), "");
  EXPECT_EQ(RunClock(0).speed(), "");
}

TEST(RunClockTest, WhatIsNotInStepsIsInHooks) {
  EXPECT_EQ(fifty_steps(3).total(1000 + 124 + 25), "0:02:29 (0:00:25 in hooks)");
  EXPECT_EQ(fifty_steps(3).total(1000 + 124 - 1), "0:02:03 (0:00:00 in hooks)");  // clocks may differ
  RunClock long_run(0);
  long_run.begin(0);
  EXPECT_EQ(long_run.total(36000 + 61), "10:01:01 (10:01:01 in hooks)");
}

}  // namespace run_clock_test
}  // namespace lockstep::engine
