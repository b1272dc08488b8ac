// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/duration.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace duration_test {

TEST(DurationTest, ReadsSecondsAndSlurmsSpellings) {
  EXPECT_EQ(parse_duration("0"), 0);
  EXPECT_EQ(parse_duration("5400"), 5400);
  EXPECT_EQ(parse_duration("2.5"), 2.5);
  EXPECT_EQ(parse_duration("0:07"), 7);
  EXPECT_EQ(parse_duration("90:00"), 5400);
  EXPECT_EQ(parse_duration("1:30:05"), 5405);
  EXPECT_EQ(parse_duration("2-01:00:00"), 2 * 86400 + 3600);
}

TEST(DurationTest, RefusesWhatIsNoTimeSpan) {
  for (const char* text : {"", "x", "-5", "nan", "inf", "1:5", "1:60", "1:00:60", "1:2:3:4", ":30", "1:", "1-30",
                           "1-00:30", "1:30:5x", "1:-1", "UNLIMITED", "INVALID", "99999999999:00"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
}

TEST(DurationTest, SecondsTextHasOneDecimalPlace) {
  EXPECT_EQ(seconds_text(0.25), "0.2 s");  // the even one of two
  EXPECT_EQ(seconds_text(1234.56), "1234.6 s");
}

TEST(DurationTest, ClockTextDropsPartsOfASecond) {
  EXPECT_EQ(clock_text(0.99), "0:00:00");
  EXPECT_EQ(clock_text(86399), "23:59:59");
  EXPECT_EQ(clock_text(86400), "1 day, 0:00:00");
  EXPECT_EQ(clock_text(2 * 86400 + 3600 + 61), "2 days, 1:01:01");
  EXPECT_EQ(clock_text(-5), "0:00:00");
  EXPECT_EQ(clock_text(std::nan("")), "0:00:00");
  EXPECT_EQ(clock_text(INFINITY), "1000000 days, 0:00:00");
}

}  // namespace duration_test
}  // namespace lockstep
