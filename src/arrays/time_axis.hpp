// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arrays/array_file.hpp"

/// Times of the CF conventions.
namespace lockstep::arrays {

enum class Calendar { standard, proleptic_gregorian, julian, noleap, all_leap, days_360 };

/// The length of a year in days, as the mean of four years without a year of a century.
double mean_year_days(Calendar calendar);

/// The unit of a time coordinate, such as "hours since 1900-01-01 00:00:00.0".
struct TimeUnit {
  double seconds = 1;  ///< length of the unit
  Calendar calendar = Calendar::standard;
  std::int64_t days = 0;     ///< number from the origin of the calendar to the date of reference
  double second_of_day = 0;  ///< time of day of the date of reference
};

/// Whether times with these units have a date of reference. Without it, they are counted from the begin of something.
bool has_reference_date(const std::string& units);

/// @param units     the attribute `units`; calendar: the attribute `calendar`, "" = standard
/// @throws ConfigError  unknown; without the file, which the caller adds
TimeUnit parse_time_unit(const std::string& units, const std::string& calendar);

/// A date and a time of day.
struct Date {
  std::int64_t year = 0;
  int month = 1;
  int day = 1;
  int hour = 0;
  int minute = 0;
  double second = 0;
};
Date date_of(const TimeUnit& unit, double value);
/// "2020-01-01T06:30:00".
std::string text_of(const Date& date);
/// The number of days of its year before it: 0 on the first of January.
std::int64_t day_of_year(const TimeUnit& unit, double value);
/// The part of its year that has passed, in [0, 1).
double fraction_of_year(const TimeUnit& unit, double value);
/// The part of its day that has passed, in [0, 1).
double fraction_of_day(const TimeUnit& unit, double value);
/// Seconds from the date of reference of the calendar, for the comparison of times with different units.
double seconds_of(const TimeUnit& unit, double value);

/// The step between times that `data.cadence` states.
struct Cadence {
  bool is_any = false;      ///< no step is a gap
  double seconds = 0;       ///< required step; 0 = the commonest one
  double tolerance = 1e-5;  ///< relative
};

/// The step that the most others equal but for rounding. @param times  seconds, at least two, strictly increasing
double commonest_step(std::span<const double> times);

/// Whether step i (from times[i] to times[i + 1]) is a gap. A step is regular if it equals the required or else the
/// commonest one but for rounding, or if it lies between 0.9 and 1.1 of it and is 27 to 31 days (months), 89 to 92 days
/// (quarters) or 365 to 366 days (years).
/// @param times  seconds, strictly increasing
std::vector<bool> gaps_between(std::span<const double> times, const Cadence& cadence);

}  // namespace lockstep::arrays
