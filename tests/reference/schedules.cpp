// SPDX-License-Identifier: BSD-3-Clause
#include "schedules.hpp"

#include <gtest/gtest.h>

namespace lockstep::testing::reference {

namespace {

std::vector<double> row_of(const Played& played, const schedule::Schedule& schedule, std::int64_t step) {
  std::vector<double> row;
  for (std::size_t g = 0; g < played.groups.size(); ++g) {
    schedule::Numbers options = played.groups[g];
    schedule.apply(step, std::to_string(g), played.groups[g], options);
    for (const std::string& name : played.shown[g]) row.push_back(options.at(name));
  }
  return row;
}

void flatten(const Json& entry, std::vector<double>& into) {
  if (!entry.is_array()) {
    into.push_back(number(entry));
    return;
  }
  for (const Json& part : entry) flatten(part, into);
}

}  // namespace

std::string text_of(double value) { return Json(value).dump(); }

std::string text_of(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ",") + text_of(value);
  return text;
}

void expect_played(const Played& played, const std::vector<std::vector<double>>& rows, std::size_t at_row,
                   const Tolerance& tolerance) {
  const auto fresh = [&] { return schedule::parse(played.rules, played.length, "reference"); };
  const auto observe = [&](schedule::Schedule& schedule, std::size_t i) {
    if (i == 0 || i > played.measured.size()) return;
    schedule::Numbers measured;
    for (const std::string& name : played.monitors) measured[name] = played.measured[i - 1];
    schedule.observe(static_cast<std::int64_t>(i), measured);
  };
  schedule::Schedule straight = fresh();
  schedule::Schedule resumed = fresh();
  std::string text;
  for (const std::string& rule : played.rules) text += rule + "; ";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    observe(straight, i);
    if (i == at_row) resumed.load_state(straight.state());
    if (i > at_row) observe(resumed, i);
    const std::string what = text + "row " + std::to_string(i);
    expect_close(row_of(played, straight, static_cast<std::int64_t>(i)), rows[i], tolerance, what);
    if (i >= at_row) {
      expect_close(row_of(played, resumed, static_cast<std::int64_t>(i)), rows[i], tolerance, what + " resumed");
    }
    if (::testing::Test::HasFailure()) return;
  }
}

std::vector<std::vector<double>> flat_rows(const Json& rows) {
  std::vector<std::vector<double>> flat;
  for (const Json& row : rows) flatten(row, flat.emplace_back());
  return flat;
}

}  // namespace lockstep::testing::reference
