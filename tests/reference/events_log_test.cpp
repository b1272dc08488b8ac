// SPDX-License-Identifier: BSD-3-Clause
// What a log shows of each series, against stored results: means over windows, over the epoch and over the run, and the
// time left.
//
// Of what is stored, this has no counterpart here: whole lines (console_line has an order of its own), the clock behind
// `time` and `data_time` (given as values here), rows of evaluations (which put no series), and the refusals of
// custom_cfg (a window is a number that the caller passes; History refuses 0 alone). The time left of a run is taken
// from the median of steps (report::Eta), so that a pause does not move it: the stored means are compared with
// History's.
#include <lockstep/engine/event_storage.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <optional>
#include <regex>

#include "core/text/duration.hpp"
#include "support/reference.hpp"

namespace lockstep::testing::reference {
namespace events_log_test {

using engine::EventStorage;
using engine::History;

constexpr Tolerance kMeans{.absolute = 1e-15, .relative = 1e-12};

/// The value that a name of the log shows.
struct Shown {
  std::string series;
  std::string method;  ///< mean, min, max, current
  Json window;         ///< a number, "epoch" or "global"
};

double answer(const History& history, const Shown& shown, std::size_t steps_of_epoch) {
  if (shown.method == "current") return history.latest().value;
  const std::size_t window = shown.window == "global"  ? History::kAll
                             : shown.window == "epoch" ? steps_of_epoch
                                                       : shown.window.get<std::size_t>();
  if (shown.method == "mean") return history.mean(window);
  if (shown.method == "min") return history.min(window);
  if (shown.method == "max") return history.max(window);
  throw std::runtime_error("a method of an unknown kind: " + shown.method);
}

/// Values by name of the log.
std::map<std::string, Shown> shown_by(const Json& settings, const std::vector<std::string>& series) {
  require_known_fields(settings, {"custom_cfg", "log_with_hierarchy", "num_digits", "window_size", "mean_pattern"});
  const std::regex pattern(settings.value("mean_pattern", ".*(loss|time|data_time|grad_norm).*"));
  std::map<std::string, Shown> shown;
  for (const std::string& name : series) {
    const bool is_mean = std::regex_match(name, pattern);
    shown[name] = {.series = name, .method = is_mean ? "mean" : "current", .window = settings.value("window_size", 10)};
  }
  for (const Json& custom : settings.value("custom_cfg", Json::array())) {
    const std::string source = custom.at("data_src");
    shown[custom.value("log_name", source)] = {source, custom.at("method_name"), custom.at("window_size")};
  }
  return shown;
}

void put_all(EventStorage& events, const Json& row) {
  events.set_step(row.at("iter"));
  for (const auto& [name, value] : row.at("put").items()) {
    const bool has_count = value.is_array();
    events.put(name, has_count ? value[0] : value, {.count = has_count ? value[1].get<std::int64_t>() : 1});
  }
  const double data = row.at("data_seconds");
  events.put("data_time", data);
  events.put("time", data + row.at("step_seconds").get<double>());
}

/// The rows that are left out do not matter in a series that has the same value in every step.
bool is_known(const Shown& shown, bool has_gap) {
  return !has_gap || shown.method == "current" || shown.series == "time" || shown.series == "data_time";
}

void run_simulation(const Json& simulation) {
  EventStorage events;
  bool has_gap = false;
  std::int64_t next = 0;
  for (const Json& row : simulation.at("rows")) {
    SCOPED_TRACE("step " + row.at("iter").dump());
    has_gap = has_gap || row.at("iter") != next;
    next = row.at("iter").get<std::int64_t>() + 1;
    put_all(events, row);
    std::vector<std::string> series;
    for (const engine::Scalar& scalar : events.latest(1)) series.push_back(scalar.name);
    const auto shown = shown_by(simulation.at("log_processor"), series);
    for (const auto& [tag, value] : row.at("tag").items()) {
      if (tag == "epoch" || tag == "iter") continue;
      const Shown& how = shown.at(tag.starts_with("train/") ? tag.substr(6) : tag);
      if (!is_known(how, has_gap)) continue;
      const History& history = events.history(how.series);
      EXPECT_TRUE(is_close(answer(history, how, row.at("batch").get<std::size_t>() + 1), value, kMeans)) << tag;
    }
    const std::int64_t total =
        simulation.at("epochs").get<std::int64_t>() * simulation.at("iters_per_epoch").get<std::int64_t>();
    const double left = events.history("time").mean_of_all() * static_cast<double>(total - next);
    EXPECT_TRUE(is_close(left, row.at("eta_seconds"), {.absolute = 1e-9, .relative = 1e-12}));
    const std::string words = "eta: " + clock_text(left) + "  ";
    EXPECT_NE(row.at("line").get<std::string>().find(words), std::string::npos) << words << "\n" << row.at("line");
  }
}

TEST(ReferenceEvents, EverySeriesOfALog) {
  if (!std::filesystem::exists(root() / "events"))
    GTEST_SKIP() << root() / "events"
                 << " is not there";
  const Json file = load("events/mmengine_log_processor.json");
  ASSERT_FALSE(file.at("simulations").empty());
  for (const Json& simulation : file.at("simulations")) {
    SCOPED_TRACE(simulation.at("name").get<std::string>());
    require_known_fields(simulation, {"name", "log_processor", "by_epoch", "epochs", "iters_per_epoch", "rows",
                                      "val_iters", "val_rows", "val_epoch"});
    run_simulation(simulation);
  }
}

}  // namespace events_log_test
}  // namespace lockstep::testing::reference
