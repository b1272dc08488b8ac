// SPDX-License-Identifier: BSD-3-Clause
// Histories of metrics and what writers see of them, against stored results.
#include <lockstep/engine/event_storage.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <vector>

#include "support/reference.hpp"

namespace lockstep::testing::reference {
namespace {

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
              .extra_fields = {"start_iter", "detectron2", "fast_reid", "detectron2_misc", "fast_reid_misc",
                               "json_lines", "published_example"}}});
}

void put_all(EventStorage& events, const Json& row) {
  events.set_step(row.at("iter"));
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

TEST(ReferenceEvents, WhatWritersSeeOfEverySeries) {
  if (!std::filesystem::exists(root() / "events"))
    GTEST_SKIP() << root() / "events"
                 << " is not there";
  const Json file = load("events/event_storage.json");
  EventStorage events;
  const Json& others = file.at("fast_reid");
  for (std::size_t i = 0; i < file.at("detectron2").size(); ++i) {
    const Json& row = file.at("detectron2")[i];
    SCOPED_TRACE("step " + row.at("iter").dump());
    put_all(events, row);
    for (const std::int64_t window : {1, 10, 20}) {
      expect_values(events.latest(window), row.at("latest_with_smoothing_hint_" + std::to_string(window)));
    }
    for (const auto& [name, count] : row.at("count_samples_10").items()) {
      EXPECT_EQ(events.history(name).count_within(10), count.get<std::size_t>()) << name;
    }
    for (const auto& [name, expected] : others[i].at("latest_with_smoothing_hint_10").items()) {
      if (name == "lr") continue;  // not smoothed
      EXPECT_EQ(events.history(name).median(10), expected[0].get<double>()) << name;
    }
  }
}

TEST(ReferenceEvents, NewsInLinesOfOneStepEach) {
  if (!std::filesystem::exists(root() / "events"))
    GTEST_SKIP() << root() / "events"
                 << " is not there";
  const Json file = load("events/event_storage.json");
  for (const Json& writer : file.at("json_lines")) {
    EventStorage events;
    std::size_t cursor = 0;
    std::vector<std::map<std::string, double>> lines;
    const std::int64_t period = writer.at("period");
    for (const Json& row : file.at("detectron2")) {
      put_all(events, row);
      const bool is_last = row.at("iter") == file.at("detectron2").back().at("iter");
      if ((row.at("iter").get<std::int64_t>() + 1) % period != 0 && !is_last) continue;
      std::vector<std::map<std::string, double>> of_this_visit;
      for (const Scalar& scalar : events.news(cursor, writer.at("window"))) {
        const auto step = static_cast<double>(scalar.step);
        auto line = std::find_if(of_this_visit.begin(), of_this_visit.end(),
                                 [step](const auto& known) { return known.at("iteration") == step; });
        if (line == of_this_visit.end()) line = of_this_visit.insert(line, {{"iteration", step}});
        (*line)[scalar.name] = scalar.value;
      }
      lines.insert(lines.end(), of_this_visit.begin(), of_this_visit.end());
      EXPECT_TRUE(events.news(cursor, 1).empty());
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
  const Json misc = load("events/event_storage.json").at("detectron2_misc");
  const Json& expected = misc.at("histogram");
  const std::vector<float> values = {0, 1, 2, 3, 4};
  const engine::Histogram histogram = engine::histogram_of(values, 4);
  EXPECT_EQ(histogram.min, expected.at("min").get<double>());
  EXPECT_EQ(histogram.max, expected.at("max").get<double>());
  EXPECT_EQ(histogram.count, expected.at("num").get<std::int64_t>());
  EXPECT_EQ(histogram.sum, expected.at("sum").get<double>());
  EXPECT_EQ(histogram.sum_squares, expected.at("sum_squares").get<double>());
  EXPECT_EQ(histogram.ends, expected.at("bucket_limits").get<std::vector<double>>());
  EXPECT_EQ(histogram.counts, expected.at("bucket_counts").get<std::vector<std::int64_t>>());

  EventStorage events;
  events.set_step(5);
  events.put("z", 5, {.is_smoothed = true});
  EXPECT_THROW(events.put("z", 6, {.is_smoothed = false}), std::logic_error);
  EXPECT_EQ(events.history("z").size(), 1U);  // there the refused value was kept
  EXPECT_EQ(events.latest(1)[0].value, misc.at("latest_z_after_failed_put")[0].get<double>());
  EXPECT_THROW(static_cast<void>(events.history("nope")), std::out_of_range);
}

}  // namespace
}  // namespace lockstep::testing::reference
