// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/time_axis.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/text/text.hpp"

namespace lockstep::arrays {

namespace {

constexpr double kDay = 86400;  // seconds

// --- days of the calendars, from 1970-01-01 on ---

constexpr std::int64_t kFirstGregorianDay = -141427;  // 1582-10-15, which follows 1582-10-04 in the calendar `standard`
constexpr std::array<int, 12> kMonthDays = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

std::int64_t floor_div(std::int64_t number, std::int64_t divisor) {
  return number / divisor - (number % divisor < 0 ? 1 : 0);
}

/// Years that are counted from March on end with the leap day, so that the days before a month follow from its number.
struct MarchYear {
  std::int64_t year = 0;
  std::int64_t month = 0;  ///< 0 = March
};

std::int64_t days_before_month(std::int64_t month_from_march) { return (153 * month_from_march + 2) / 5; }

/// Days of a calendar that has a leap day every four years, and that leaves out some of them.
std::int64_t leap_year_days(std::int64_t year, int month, int day, bool is_gregorian) {
  const MarchYear march{.year = month > 2 ? year : year - 1, .month = (month + 9) % 12};
  const std::int64_t days = 365 * march.year + floor_div(march.year, 4) + days_before_month(march.month) + day - 1;
  constexpr std::int64_t kGregorianStart = 719468, kJulianStart = 719470;  // days from 0000-03-01 to 1970-01-01
  if (!is_gregorian) return days - kJulianStart;
  return days - floor_div(march.year, 100) + floor_div(march.year, 400) - kGregorianStart;
}

/// @param leap_days  in February
std::int64_t days_before_month_of_year(int month, int leap_days) {
  std::int64_t days = month > 2 ? leap_days : 0;
  for (int m = 1; m < month; ++m) days += kMonthDays[static_cast<std::size_t>(m - 1)];
  return days;
}

std::int64_t days_of(Calendar calendar, std::int64_t year, int month, int day) {
  switch (calendar) {
    case Calendar::noleap:
      return 365 * (year - 1970) + days_before_month_of_year(month, 0) + day - 1;
    case Calendar::all_leap:
      return 366 * (year - 1970) + days_before_month_of_year(month, 1) + day - 1;
    case Calendar::days_360:
      return 360 * (year - 1970) + 30 * (month - 1) + day - 1;
    case Calendar::proleptic_gregorian:
      return leap_year_days(year, month, day, true);
    case Calendar::julian:
      return leap_year_days(year, month, day, false);
    case Calendar::standard:
      break;
  }
  const std::int64_t days = leap_year_days(year, month, day, true);
  return days >= kFirstGregorianDay ? days : leap_year_days(year, month, day, false);
}

/// The last year that begins on this day or before.
std::int64_t year_of(Calendar calendar, std::int64_t day) {
  auto year = 1970 + static_cast<std::int64_t>(std::floor(static_cast<double>(day) / mean_year_days(calendar)));
  while (days_of(calendar, year, 1, 1) > day) --year;
  while (days_of(calendar, year + 1, 1, 1) <= day) ++year;
  return year;
}

Date date_of_day(Calendar calendar, std::int64_t day) {
  Date date{.year = year_of(calendar, day)};
  while (date.month < 12 && days_of(calendar, date.year, date.month + 1, 1) <= day) ++date.month;
  const std::int64_t first = days_of(calendar, date.year, date.month, 1);
  date.day = static_cast<int>(day - first) + 1;
  const bool is_behind_the_change =
      calendar == Calendar::standard && first < kFirstGregorianDay && day >= kFirstGregorianDay;
  if (is_behind_the_change) date.day = static_cast<int>(day - leap_year_days(date.year, date.month, 1, true)) + 1;
  return date;
}

// --- a moment ---

struct Moment {
  std::int64_t day = 0;
  double second = 0;  ///< range [0, 86400)
};

/// Values are often fractions of days: seconds are rounded to millionths.
Moment moment_of(const TimeUnit& unit, double value) {
  constexpr double kMaxDays = 4e9, kParts = 1e6;
  const long double days = static_cast<long double>(value) * unit.seconds / kDay;
  if (!(std::fabs(days) < kMaxDays)) throw DataError("the time " + number_text(value) + " is not a date");
  const long double whole = std::floor(days);
  long double rest = static_cast<long double>(value) * unit.seconds - whole * kDay + unit.second_of_day;
  rest = std::round(rest * kParts) / kParts;
  const long double carried = std::floor(rest / kDay);
  return {.day = unit.days + static_cast<std::int64_t>(whole) + static_cast<std::int64_t>(carried),
          .second = static_cast<double>(rest - carried * kDay)};
}

// --- reading units ---

struct UnitRow {
  double seconds = 1;
  std::vector<std::string_view> names;
};

const std::vector<UnitRow>& unit_rows() {
  static const std::vector<UnitRow> rows = {
      {1e-9, {"nanoseconds", "nanosecond"}},
      {1e-6, {"microseconds", "microsecond"}},
      {1e-3, {"milliseconds", "millisecond", "millisec", "millisecs", "msec", "msecs", "ms"}},
      {1, {"seconds", "second", "sec", "secs", "s"}},
      {60, {"minutes", "minute", "min", "mins"}},
      {3600, {"hours", "hour", "hr", "hrs", "h"}},
      {kDay, {"days", "day", "d"}},
  };
  return rows;
}

constexpr std::array<std::pair<std::string_view, Calendar>, 9> kCalendars = {{
    {"standard", Calendar::standard},
    {"gregorian", Calendar::standard},
    {"proleptic_gregorian", Calendar::proleptic_gregorian},
    {"julian", Calendar::julian},
    {"noleap", Calendar::noleap},
    {"365_day", Calendar::noleap},
    {"all_leap", Calendar::all_leap},
    {"366_day", Calendar::all_leap},
    {"360_day", Calendar::days_360},
}};

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  return text;
}

Calendar calendar_of(const std::string& name) {
  if (trimmed(name).empty()) return Calendar::standard;
  const std::string word = lower(trimmed(name));
  const auto* const row = std::ranges::find(kCalendars, word, &std::pair<std::string_view, Calendar>::first);
  if (row != kCalendars.end()) return row->second;
  std::vector<std::string> known;
  for (const auto& [calendar, value] : kCalendars) known.emplace_back(calendar);
  throw ConfigError("the calendar '" + name + "' is not supported; supported are " + joined(known));
}

/// Reads a date of reference, such as "1900-1-1", "1970-01-01T00:00:00Z" or "2000-01-01 06:30:00.0 +1:00".
class ReferenceParser {
 public:
  ReferenceParser(std::string_view text, const std::string& units) : rest_(text), units_(units) {}

  void parse(TimeUnit& unit) {
    const std::int64_t sign = accept('-') ? -1 : 1;
    const std::int64_t year = sign * number();
    expect('-');
    const std::int64_t month = number();
    expect('-');
    const std::int64_t day = number();
    if (month < 1 || month > 12) malformed("there is no month " + std::to_string(month));
    unit.days = days_of(unit.calendar, year, static_cast<int>(month), static_cast<int>(day));
    if (date_of_day(unit.calendar, unit.days).day != day) {
      malformed("this month has no day " + std::to_string(day));
    }
    accept('T') || accept('t');
    skip_blanks();
    if (has_digit()) unit.second_of_day = time_of_day();
    skip_blanks();
    unit.second_of_day -= zone();
    if (!rest_.empty()) malformed("'" + std::string(rest_) + "' is not a part of a date");
  }

 private:
  [[noreturn]] void malformed(const std::string& reason) const {
    throw ConfigError("the unit of time '" + units_ + "' cannot be read: " + reason +
                      "; write it like 'hours since 1900-01-01 00:00:00'");
  }

  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size())); }
  bool has_digit() const { return !rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9'; }
  bool accept(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!accept(c)) malformed(std::string("'") + c + "' is missing");
  }

  std::int64_t number() {
    std::int64_t value = 0;
    const auto parsed = std::from_chars(rest_.data(), rest_.data() + std::min<std::size_t>(rest_.size(), 9), value);
    if (!has_digit() || parsed.ec != std::errc()) malformed("a number is missing");
    rest_.remove_prefix(static_cast<std::size_t>(parsed.ptr - rest_.data()));
    return value;
  }

  /// Digits behind a decimal point.
  double fraction() {
    double value = 0, place = 1;
    for (; has_digit(); rest_.remove_prefix(1)) value += (rest_.front() - '0') * (place /= 10);
    return value;
  }

  double time_of_day() {
    double seconds = 3600 * static_cast<double>(number());
    if (accept(':')) seconds += 60 * static_cast<double>(number());
    if (accept(':')) seconds += static_cast<double>(number());
    if (accept('.')) seconds += fraction();
    if (seconds > kDay) malformed("its time is beyond 24 hours");
    return seconds;
  }

  /// Seconds that the clock of the reference is ahead of UTC: "Z", "UTC", "+01:00", "-6".
  double zone() {
    for (const std::string_view name : {"UTC", "utc", "GMT", "gmt", "Z", "z"}) {
      if (!rest_.starts_with(name)) continue;
      rest_.remove_prefix(name.size());
      return 0;
    }
    const double sign = accept('-') ? -1 : accept('+') ? 1 : 0;
    if (sign == 0) return 0;
    std::int64_t hours = number();
    std::int64_t minutes = accept(':') ? number() : 0;
    if (hours >= 100) minutes = std::exchange(hours, hours / 100) % 100;  // "+0130"
    return sign * static_cast<double>(3600 * hours + 60 * minutes);
  }

  std::string_view rest_;
  const std::string& units_;
};

/// The beginning and the rest of "hours since 1900-01-01".
constexpr std::string_view kSince = " since ";

std::pair<std::string, std::string> split_units(const std::string& units) {
  const std::size_t border = lower(units).find(kSince);
  if (border == std::string::npos) {
    throw ConfigError("the unit of time '" + units + "' has no date of reference; write it like " +
                      "'hours since 1900-01-01 00:00:00'");
  }
  return {lower(trimmed(units.substr(0, border))), trimmed(units.substr(border + kSince.size()))};
}

double unit_seconds(const std::string& word, const std::string& units) {
  for (const UnitRow& row : unit_rows()) {
    if (std::ranges::find(row.names, word) != row.names.end()) return row.seconds;
  }
  const bool is_uneven = word.starts_with("month") || word.starts_with("year") || word.starts_with("common_year");
  throw ConfigError("the unit of time '" + units +
                    "' is not supported: " + (is_uneven ? "months and years have no fixed length; " : "") +
                    "use seconds, minutes, hours or days");
}

// --- steps ---

std::vector<double> steps_between(std::span<const double> times) {
  std::vector<double> steps(times.size() - 1);
  for (std::size_t i = 0; i < steps.size(); ++i) steps[i] = times[i + 1] - times[i];
  return steps;
}

/// The step that the most others equal but for rounding; the shorter one of two.
double commonest(std::vector<double> steps, double tolerance) {
  std::ranges::sort(steps);
  std::size_t best = 0, best_count = 0, end = 0;
  for (std::size_t begin = 0; begin < steps.size(); ++begin) {
    end = std::max(end, begin + 1);
    while (end < steps.size() && steps[end] <= steps[begin] * (1 + tolerance)) ++end;
    if (end - begin > best_count) {
      best_count = end - begin;
      best = begin + best_count / 2;
    }
  }
  return steps[best];
}

bool is_part_of_calendar(double seconds, double tolerance) {
  const auto lies_between = [&](double lowest, double highest) {
    return seconds >= lowest * kDay * (1 - tolerance) && seconds <= highest * kDay * (1 + tolerance);
  };
  return lies_between(27, 31) || lies_between(89, 92) || lies_between(365, 366);
}

}  // namespace

double mean_year_days(Calendar calendar) {
  switch (calendar) {
    case Calendar::noleap:
      return 365;
    case Calendar::all_leap:
      return 366;
    case Calendar::days_360:
      return 360;
    default:
      return 365.25;
  }
}

bool has_reference_date(const std::string& units) { return lower(units).find(kSince) != std::string::npos; }

TimeUnit parse_time_unit(const std::string& units, const std::string& calendar) {
  const auto [word, reference] = split_units(units);
  TimeUnit unit{.seconds = unit_seconds(word, units), .calendar = calendar_of(calendar)};
  ReferenceParser(reference, units).parse(unit);
  return unit;
}

Date date_of(const TimeUnit& unit, double value) {
  const Moment moment = moment_of(unit, value);
  Date date = date_of_day(unit.calendar, moment.day);
  const int minutes = static_cast<int>(moment.second / 60);
  date.hour = minutes / 60;
  date.minute = minutes % 60;
  date.second = std::round((moment.second - 60 * minutes) * 1e6) / 1e6;
  return date;
}

std::string text_of(const Date& date) {
  const auto padded = [](std::int64_t number, std::size_t digits) {
    const std::string text = std::to_string(number < 0 ? -number : number);
    return (number < 0 ? "-" : "") + std::string(digits - std::min(digits, text.size()), '0') + text;
  };
  const auto seconds = static_cast<std::int64_t>(date.second);
  const auto millionths = static_cast<std::int64_t>(std::round((date.second - static_cast<double>(seconds)) * 1e6));
  std::string text = padded(date.year, 4) + "-" + padded(date.month, 2) + "-" + padded(date.day, 2) + "T" +
                     padded(date.hour, 2) + ":" + padded(date.minute, 2) + ":" + padded(seconds, 2);
  if (millionths == 0) return text;
  text += "." + padded(millionths, 6);
  return text.substr(0, text.find_last_not_of('0') + 1);
}

std::int64_t day_of_year(const TimeUnit& unit, double value) {
  const std::int64_t day = moment_of(unit, value).day;
  return day - days_of(unit.calendar, year_of(unit.calendar, day), 1, 1);
}

double fraction_of_year(const TimeUnit& unit, double value) {
  const Moment moment = moment_of(unit, value);
  const std::int64_t year = year_of(unit.calendar, moment.day);
  const std::int64_t begin = days_of(unit.calendar, year, 1, 1), end = days_of(unit.calendar, year + 1, 1, 1);
  return (static_cast<double>(moment.day - begin) + moment.second / kDay) / static_cast<double>(end - begin);
}

double fraction_of_day(const TimeUnit& unit, double value) { return moment_of(unit, value).second / kDay; }

double seconds_of(const TimeUnit& unit, double value) {
  return static_cast<double>(unit.days) * kDay + unit.second_of_day + value * unit.seconds;
}

double commonest_step(std::span<const double> times) { return commonest(steps_between(times), Cadence().tolerance); }

std::vector<bool> gaps_between(std::span<const double> times, const Cadence& cadence) {
  if (times.size() < 2) return {};
  const std::vector<double> steps = steps_between(times);
  std::vector<bool> gaps(steps.size(), false);
  if (cadence.is_any) return gaps;
  const double regular = cadence.seconds > 0 ? cadence.seconds : commonest(steps, cadence.tolerance);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const bool is_equal = std::fabs(steps[i] - regular) <= cadence.tolerance * regular;
    const bool is_near = steps[i] >= 0.9 * regular && steps[i] <= 1.1 * regular;
    gaps[i] = !is_equal && !(is_near && is_part_of_calendar(steps[i], cadence.tolerance));
  }
  return gaps;
}

}  // namespace lockstep::arrays
