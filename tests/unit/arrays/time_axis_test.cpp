// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/time_axis.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

namespace lockstep::arrays {
namespace time_axis_test {

std::string date_text(const std::string& units, const std::string& calendar, double value) {
  return text_of(date_of(parse_time_unit(units, calendar), value));
}

TEST(TimeAxisTest, UnitsAndDatesOfReference) {
  EXPECT_EQ(date_text("hours since 1900-01-01 00:00:00.0", "", 6.5), "1900-01-01T06:30:00");
  EXPECT_EQ(date_text("Days since 2000-2-28", "", 1), "2000-02-29T00:00:00");
  EXPECT_EQ(date_text("s since 1970-01-01T00:00:00Z", "", 86399.25), "1970-01-01T23:59:59.25");
  EXPECT_EQ(date_text("minutes since 1979-01-01 06:30 UTC", "", -31), "1979-01-01T05:59:00");
  EXPECT_EQ(date_text("hours since 2000-01-01 00:00 +1:30", "", 0), "1999-12-31T22:30:00");
  EXPECT_EQ(date_text("hours since 2000-01-01 00:00:00 -0600", "", 0), "2000-01-01T06:00:00");
  EXPECT_EQ(date_text("days since 0001-01-01", "proleptic_gregorian", 719162), "1970-01-01T00:00:00");
}

/// The day after 1582-10-04 is 1582-10-15 in the calendar `standard`, and all years before that are Julian.
TEST(TimeAxisTest, StandardChangesTheCalendar) {
  EXPECT_EQ(date_text("days since 1582-10-04", "standard", 1), "1582-10-15T00:00:00");
  EXPECT_EQ(date_text("days since 1582-10-15", "gregorian", -1), "1582-10-04T00:00:00");
  EXPECT_EQ(date_text("days since 1582-10-04", "proleptic_gregorian", 1), "1582-10-05T00:00:00");
  EXPECT_EQ(date_text("days since 1500-02-28", "standard", 1), "1500-02-29T00:00:00");
  // "hours since 1-1-1" of older reanalyses: 1800-01-01 is 657073 days later, not 657071.
  EXPECT_EQ(date_text("hours since 1-1-1 00:00:0.0", "", 24.0 * 657073), "1800-01-01T00:00:00");
  EXPECT_THROW(parse_time_unit("days since 1582-10-10", "standard"), ConfigError);
}

TEST(TimeAxisTest, OtherCalendars) {
  EXPECT_EQ(date_text("days since 2000-02-28", "noleap", 1), "2000-03-01T00:00:00");
  EXPECT_EQ(date_text("days since 2000-01-01", "365_day", 365 * 4), "2004-01-01T00:00:00");
  EXPECT_EQ(date_text("days since 2000-02-30", "360_day", 1), "2000-03-01T00:00:00");
  EXPECT_EQ(date_text("days since 2001-02-28", "all_leap", 1), "2001-02-29T00:00:00");
  EXPECT_EQ(date_text("days since 2001-01-01", "366_day", 366 * 4), "2005-01-01T00:00:00");
  EXPECT_EQ(date_text("days since 1900-02-28", "julian", 1), "1900-02-29T00:00:00");
  // 1582-10-04 of the Julian calendar is the day before 1582-10-15 of the Gregorian one.
  EXPECT_EQ(seconds_of(parse_time_unit("days since 1582-10-04", "julian"), 1),
            seconds_of(parse_time_unit("days since 1582-10-15", "proleptic_gregorian"), 0));
  EXPECT_DOUBLE_EQ(fraction_of_year(parse_time_unit("days since 2000-01-01", "360_day"), 90), 0.25);
  EXPECT_EQ(day_of_year(parse_time_unit("days since 2000-01-01", "standard"), 365.5), 365);  // a leap year
  EXPECT_EQ(day_of_year(parse_time_unit("days since 2000-01-01", "noleap"), 365.5), 0);
  EXPECT_DOUBLE_EQ(fraction_of_day(parse_time_unit("hours since 2000-01-01 18:00", ""), 12), 0.25);
}

/// Every day of some years, in both directions.
TEST(TimeAxisTest, DaysAreConsecutive) {
  for (const char* const calendar : {"standard", "proleptic_gregorian", "julian", "noleap", "all_leap", "360_day"}) {
    const TimeUnit unit = parse_time_unit("days since 1970-01-01", calendar);
    Date before = date_of(unit, -150000);
    for (int day = -149999; day < 60000; ++day) {
      const Date date = date_of(unit, day);
      const bool is_next_day = date.day == before.day + 1 && date.month == before.month && date.year == before.year;
      const bool is_next_month =
          date.day == 1 && date.month == before.month % 12 + 1 && date.year == before.year + (date.month == 1 ? 1 : 0);
      const bool is_change = text_of(date) == "1582-10-15T00:00:00" && text_of(before) == "1582-10-04T00:00:00";
      ASSERT_TRUE(is_next_day || is_next_month || is_change) << calendar << " " << text_of(date);
      before = date;
    }
  }
}

TEST(TimeAxisTest, RoundingDoesNotMakeSixtySeconds) {
  const TimeUnit unit = parse_time_unit("days since 2000-01-01", "");
  EXPECT_EQ(text_of(date_of(unit, 1.0 / 3)), "2000-01-01T08:00:00");
  EXPECT_EQ(text_of(date_of(unit, 1 - 1e-14)), "2000-01-02T00:00:00");
}

TEST(TimeAxisTest, TimesWithDifferentUnitsCompare) {
  const TimeUnit hours = parse_time_unit("hours since 1900-01-01", ""),
                 days = parse_time_unit("days since 2000-01-01", "");
  EXPECT_EQ(seconds_of(hours, 24 * 36524), seconds_of(days, 0));
  EXPECT_EQ(seconds_of(parse_time_unit("seconds since 1970-01-01", ""), 5), 5);
}

std::string error_of_unit(const std::string& units, const std::string& calendar) {
  try {
    parse_time_unit(units, calendar);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(TimeAxisTest, UnknownUnitsAndCalendars) {
  EXPECT_NE(error_of_unit("days since 2000-01-01", "lunar").find("'lunar'"), std::string::npos);
  EXPECT_NE(error_of_unit("days since 2000-01-01", "lunar").find("360_day"), std::string::npos);
  EXPECT_NE(error_of_unit("months since 2000-01-01", "").find("no fixed length"), std::string::npos);
  EXPECT_NE(error_of_unit("days", "").find("no date of reference"), std::string::npos);
  for (const char* const date :
       {"2000", "2000-13-01", "2000-02-30", "2000-01-00", "tomorrow", "2000-01-01 25:00", "2000-01-01 noon"}) {
    EXPECT_NE(error_of_unit(std::string("days since ") + date, "").find(date), std::string::npos) << date;
  }
  EXPECT_THROW(date_of(parse_time_unit("days since 2000-01-01", ""), std::numeric_limits<double>::quiet_NaN()),
               DataError);
}

// --- gaps ---

constexpr double kDay = 86400;

std::vector<bool> gaps_of_days(std::vector<double> days, const Cadence& cadence = {}) {
  for (double& day : days) day *= kDay;
  return gaps_between(days, cadence);
}

TEST(GapsTest, QuartersOfTheYearAreRegular) {
  EXPECT_EQ(gaps_of_days({0, 90, 181, 273, 365, 455, 546, 638}), std::vector<bool>(7, false));
  EXPECT_EQ(gaps_of_days({0, 92, 184, 276, 364}), (std::vector<bool>{false, false, false, true}));
}

TEST(GapsTest, TheCommonestStepIsRegular) {
  EXPECT_EQ(gaps_of_days({0, 1, 2, 5, 6}), (std::vector<bool>{false, false, true, false}));
  EXPECT_EQ(gaps_of_days({0, 1, 2, 5, 6}, {.is_any = true}), std::vector<bool>(4, false));
  EXPECT_EQ(gaps_of_days({0, 1, 2, 5, 6}, {.seconds = 3 * kDay}), (std::vector<bool>{true, true, false, true}));
  EXPECT_EQ(gaps_of_days({0, 1, 1.25, 1.5}), (std::vector<bool>{true, false, false}));
  EXPECT_EQ(gaps_of_days({0}), std::vector<bool>());
  EXPECT_EQ(gaps_of_days({0, 9}), std::vector<bool>{false});
}

TEST(GapsTest, RoundingIsNoGap) {
  EXPECT_EQ(gaps_of_days({0, 1, 2 + 5e-6, 3, 4}), std::vector<bool>(4, false));
  EXPECT_EQ(gaps_of_days({0, 1, 2, 3 + 1e-4, 4}), (std::vector<bool>{false, false, true, true}));
}

TEST(GapsTest, MonthsAndYearsAreRegular) {
  EXPECT_EQ(gaps_of_days({0, 31, 59, 90, 120}), std::vector<bool>(4, false));  // January to May
  EXPECT_EQ(gaps_of_days({0, 31, 59, 120, 151}), (std::vector<bool>{false, false, true, false}));
  EXPECT_EQ(gaps_of_days({0, 365, 731, 1096}), std::vector<bool>(3, false));
  EXPECT_EQ(gaps_of_days({0, 26, 52, 81}), (std::vector<bool>{false, false, true}));  // 29 is beyond 1.1 x 26
  EXPECT_EQ(gaps_of_days({0, 10, 20, 30.5}), (std::vector<bool>{false, false, true}));
}

}  // namespace time_axis_test
}  // namespace lockstep::arrays
