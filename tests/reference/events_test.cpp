// SPDX-License-Identifier: BSD-3-Clause
// Histories of metrics and what writers see of them, against stored results.
#include <lockstep/engine/event_storage.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>
#include <vector>

#include "support/reference.hpp"

namespace lockstep::testing::reference {
namespace events_test {

using engine::EventStorage;
using engine::History;
using engine::Scalar;

constexpr Tolerance kExact{.absolute = 0, .relative = 0};
constexpr Tolerance kMeans{.absolute = 1e-15, .relative = 1e-12};

/// "median_20" -> the history's answer.
double answer(const History& history, const std::string& question) {
  const std::size_t border = question.rfind('_');
  const std::string what = question.substr(0, border);
  if (question == "latest" || question == "current") return history.latest().value;
  if (question == "global_avg") return history.mean_of_all();
  const std::string width = question.substr(border + 1);
  const std::size_t window = width == "all" ? History::kAll : std::stoul(width);
  if (what == "median") return history.median(window);
  if (what == "avg" || what == "mean") return history.mean(window);
  if (what == "min") return history.min(window);
  if (what == "max") return history.max(window);
  throw std::runtime_error("a question of an unknown kind: " + question);
}

void check_answers(const History& history, const Json& expected) {
  for (const auto& [question, value] : expected.items()) {
    const bool is_mean = question.find("avg") != std::string::npos || question.find("mean") != std::string::npos;
    EXPECT_TRUE(is_close(answer(history, question), value, is_mean ? kMeans : kExact)) << question;
  }
}

void run_fvcore(const Json& one_case) {
  require_known_fields(one_case, {"max_length", "values", "iterations", "after_each_update", "stored_at_end",
                                  "median_0_means_all", "avg_0_means_all"});
  History history(one_case.at("max_length"));
  for (std::size_t i = 0; i < one_case.at("values").size(); ++i) {
    SCOPED_TRACE("value " + std::to_string(i));
    history.add({.value = one_case.at("values")[i], .step = one_case.at("iterations")[i]});
    check_answers(history, one_case.at("after_each_update")[i]);
  }
  const Json& stored = one_case.at("stored_at_end");
  ASSERT_EQ(history.size(), stored.size());
  for (std::size_t i = 0; i < stored.size(); ++i) {
    EXPECT_EQ(history.at(i).value, stored[i][0].get<double>());
    EXPECT_EQ(static_cast<double>(history.at(i).step), stored[i][1].get<double>());
  }
  EXPECT_EQ(history.median(History::kAll), one_case.at("median_0_means_all").get<double>());
  EXPECT_TRUE(is_close(history.mean(History::kAll), one_case.at("avg_0_means_all"), kMeans));
  EXPECT_THROW(static_cast<void>(history.median(0)), std::invalid_argument);
}

void run_mmengine(const Json& one_case) {
  require_known_fields(one_case, {"max_length", "values", "counts", "after_each_update", "stored_at_end"});
  History history(one_case.at("max_length"));
  for (std::size_t i = 0; i < one_case.at("values").size(); ++i) {
    SCOPED_TRACE("value " + std::to_string(i));
    history.add({.value = one_case.at("values")[i],
                 .step = static_cast<std::int64_t>(i),
                 .count = one_case.at("counts")[i].get<std::int64_t>()});
    check_answers(history, one_case.at("after_each_update")[i]);
  }
  EXPECT_EQ(history.size(), one_case.at("stored_at_end").get<std::size_t>());
}

TEST(ReferenceEvents, EveryHistory) {
  run_topic("events",
            {{.file = "fvcore_history_buffer.json",
              .extra_fields = {"default_iterations_are_counts", "latest_on_empty_raises"},
              .run = run_fvcore},
             {.file = "mmengine_history_buffer.json", .extra_fields = {"small", "errors"}, .run = run_mmengine},
             {.file = "mmengine_log_processor.json", .extra_fields = {"simulations", "custom_cfg_errors"}},
             {.file = "event_storage.json",
              .extra_fields = {"start_iter", "smoothing_windows", "json_lines_first_iteration", "detectron2",
                               "fast_reid", "detectron2_misc", "fast_reid_misc", "json_lines", "published_example"}}});
}

void put_all(EventStorage& events, const Json& row, std::int64_t step) {
  events.set_step(step);
  for (const Json& put : row.at("put")) {
    events.put(put[0], put[1], {.is_smoothed = put[2].get<bool>()});
  }
}

void expect_values(const std::vector<Scalar>& scalars, const Json& expected) {
  EXPECT_EQ(scalars.size(), expected.size());
  for (const Scalar& scalar : scalars) {
    ASSERT_TRUE(expected.contains(scalar.name)) << scalar.name;
    const Json& row = expected.at(scalar.name);
    EXPECT_EQ(scalar.value, row[0].get<double>()) << scalar.name;
    EXPECT_EQ(scalar.step, row[1].get<std::int64_t>()) << scalar.name;
  }
}

/// The fields of a row whose names are `prefix` and a window, by window.
std::map<std::int64_t, Json> by_window(const Json& row, const std::string& prefix) {
  std::map<std::int64_t, Json> found;
  for (const auto& [field, value] : row.items()) {
    if (field.starts_with(prefix)) found[std::stoll(field.substr(prefix.size()))] = value;
  }
  return found;
}

constexpr const char* kLatest = "latest_with_smoothing_hint_";
constexpr const char* kCounts = "count_samples_";

void require_known_row(const Json& row, const std::vector<std::string>& fields) {
  for (const auto& [field, value] : row.items()) {
    const bool is_known = std::find(fields.begin(), fields.end(), field) != fields.end();
    if (is_known || field.starts_with(kLatest) || field.starts_with(kCounts)) continue;
    throw std::runtime_error("no test knows the field '" + field + "'");
  }
}

/// There windows count values, not steps.
void expect_medians(const EventStorage& events, const Json& row, const std::map<std::string, bool>& is_smoothed) {
  require_known_row(row, {"iter"});
  for (const auto& [window, expected] : by_window(row, kLatest)) {
    for (const auto& [name, pair] : expected.items()) {
      const History& history = events.history(name);
      const double value =
          is_smoothed.at(name) ? history.median(static_cast<std::size_t>(window)) : history.latest().value;
      EXPECT_EQ(value, pair[0].get<double>()) << name << " over " << window;
      EXPECT_EQ(history.latest().step, pair[1].get<std::int64_t>()) << name;
    }
  }
}

TEST(ReferenceEvents, WhatWritersSeeOfEverySeries) {
  if (!std::filesystem::exists(root() / "events"))
    GTEST_SKIP() << root() / "events"
                 << " is not there";
  const Json file = load("events/event_storage.json");
  EventStorage events;
  const Json& others = file.at("fast_reid");
  const auto windows = file.at("smoothing_windows").get<std::set<std::int64_t>>();
  const std::int64_t start = file.at("start_iter");
  std::map<std::string, bool> is_smoothed;
  ASSERT_FALSE(file.at("detectron2").empty());
  ASSERT_EQ(others.size(), file.at("detectron2").size());
  for (std::size_t i = 0; i < others.size(); ++i) {
    const Json& row = file.at("detectron2")[i];
    const std::int64_t step = row.at("iter");
    SCOPED_TRACE("step " + std::to_string(step));
    require_known_row(row, {"iter", "put"});
    EXPECT_EQ(step, start + static_cast<std::int64_t>(i));
    EXPECT_EQ(others[i].at("iter"), step);
    put_all(events, row, step);
    for (const Json& put : row.at("put")) is_smoothed[put[0]] = put[2];
    std::set<std::int64_t> found;
    for (const auto& [window, expected] : by_window(row, kLatest)) {
      expect_values(events.latest(window), expected);
      found.insert(window);
    }
    EXPECT_EQ(found, windows);
    for (const auto& [window, counts] : by_window(row, kCounts)) {
      for (const auto& [name, count] : counts.items()) {
        EXPECT_EQ(events.history(name).count_within(window), count.get<std::size_t>()) << name << " over " << window;
      }
    }
    expect_medians(events, others[i], is_smoothed);
  }
}

TEST(ReferenceEvents, UpdatesInLinesOfOneStepEach) {
  if (!std::filesystem::exists(root() / "events"))
    GTEST_SKIP() << root() / "events"
                 << " is not there";
  const Json file = load("events/event_storage.json");
  ASSERT_FALSE(file.at("json_lines").empty());
  for (const Json& writer : file.at("json_lines")) {
    require_known_fields(writer, {"window", "period", "lines"});
    EventStorage events;
    std::size_t cursor = 0;
    std::vector<std::map<std::string, double>> lines;
    const std::int64_t period = writer.at("period");
    // The values of the rows above, in a run that begins elsewhere.
    const std::int64_t first = file.at("json_lines_first_iteration");
    const auto last = first + static_cast<std::int64_t>(file.at("detectron2").size()) - 1;
    for (std::int64_t step = first; step <= last; ++step) {
      put_all(events, file.at("detectron2")[static_cast<std::size_t>(step - first)], step);
      if ((step + 1) % period != 0 && step != last) continue;
      std::vector<std::map<std::string, double>> of_this_visit;
      for (const Scalar& scalar : events.updates_since(cursor, writer.at("window"))) {
        const auto iteration = static_cast<double>(scalar.step);
        auto line = std::find_if(of_this_visit.begin(), of_this_visit.end(),
                                 [iteration](const auto& known) { return known.at("iteration") == iteration; });
        if (line == of_this_visit.end()) line = of_this_visit.insert(line, {{"iteration", iteration}});
        (*line)[scalar.name] = scalar.value;
      }
      lines.insert(lines.end(), of_this_visit.begin(), of_this_visit.end());
      EXPECT_TRUE(events.updates_since(cursor, 1).empty());
    }
    ASSERT_EQ(lines.size(), writer.at("lines").size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(lines[i], (writer.at("lines")[i].get<std::map<std::string, double>>())) << "line " << i;
    }
  }
}

TEST(ReferenceEvents, NamesHistogramsAndRefusals) {
  if (!std::filesystem::exists(root() / "events"))
    GTEST_SKIP() << root() / "events"
                 << " is not there";
  const Json file = load("events/event_storage.json");
  EXPECT_EQ(file.at("fast_reid_misc"), file.at("detectron2_misc"));  // both libraries share this code
  const Json& misc = file.at("detectron2_misc");
  const Json& expected = misc.at("histogram");
  // The stored histogram is of evenly spaced numbers.
  const std::int64_t count = expected.at("num");
  const double smallest = expected.at("min");
  const double distance = (expected.at("max").get<double>() - smallest) / static_cast<double>(count - 1);
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(smallest + distance * static_cast<double>(i)));
  }
  const Histogram histogram = histogram_of(values, expected.at("bucket_limits").size());
  EXPECT_EQ(histogram.min, expected.at("min").get<double>());
  EXPECT_EQ(histogram.max, expected.at("max").get<double>());
  EXPECT_EQ(histogram.count, expected.at("num").get<std::int64_t>());
  EXPECT_EQ(histogram.sum, expected.at("sum").get<double>());
  EXPECT_EQ(histogram.sum_squares, expected.at("sum_squares").get<double>());
  EXPECT_EQ(histogram.ends, expected.at("bucket_limits").get<std::vector<double>>());
  EXPECT_EQ(histogram.counts, expected.at("bucket_counts").get<std::vector<std::int64_t>>());

  EventStorage events;
  const Json& latest = misc.at("latest_z_after_failed_put");
  const double value = latest[0];
  events.set_step(latest[1]);
  events.put("z", value, {.is_smoothed = true});
  EXPECT_THROW(events.put("z", value + 1, {.is_smoothed = false}), std::logic_error);
  EXPECT_EQ(events.history("z").size(), 1U);  // there the refused value was kept
  EXPECT_EQ(events.latest(1)[0].value, value);
  EXPECT_EQ(events.latest(1)[0].step, latest[1].get<std::int64_t>());
  EXPECT_THROW(static_cast<void>(events.history("nope")), std::out_of_range);
}

}  // namespace events_test
}  // namespace lockstep::testing::reference
