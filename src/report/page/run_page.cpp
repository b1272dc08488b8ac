// SPDX-License-Identifier: BSD-3-Clause
#include "report/page/run_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "core/text/text.hpp"
#include "plot/svg.hpp"
#include "report/page/curve_charts.hpp"
#include "report/page/evaluation_section.hpp"
#include "report/page/fields_section.hpp"
#include "report/page/html.hpp"
#include "report/page/run_data.hpp"

namespace lockstep::report {

namespace {

using plot::escaped;
using Lines = PageRows;

std::string brief(double value) {
  return std::abs(value) >= 1e4 && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value) : fmt::format("{:.5g}", value);
}

std::string last_of(const plot::Series* curve) { return curve == nullptr ? "-" : brief(curve->points.back().y); }

Lines last_numbers(const PageData& run) {
  Lines table;
  for (const plot::Series& curve : run.curves) {
    double low = curve.points.front().y;
    double high = low;
    for (const plot::Point& point : curve.points) {
      low = std::fmin(low, point.y);
      high = std::fmax(high, point.y);
    }
    table.push_back({curve.name, brief(curve.points.back().y), brief(low), brief(high)});
  }
  return table;
}

std::string configuration_section(const PageData& run) {
  Lines chosen;
  Lines defaults;
  for (const Setting& setting : run.configuration) {
    if (setting.origin == "default") {
      defaults.push_back({setting.name, setting.value});
    } else {
      chosen.push_back({setting.name, setting.value, setting.origin});
    }
  }
  const std::string command = run.command.empty() ? "" : "<p><code>" + escaped(run.command) + "</code></p>\n";
  return html_section("Configuration", command + html_table({"key", "value", "from"}, chosen) +
                                           html_details("keys at their defaults", html_table({}, defaults)));
}

std::string replaced_section(const PageData& run) {
  if (run.replaced.empty()) return "";
  Lines names;
  for (const std::string& name : run.replaced) names.push_back({name});
  return html_section("Replaced samples",
                      "<p>" + std::to_string(run.replaced.size()) +
                          " samples could not be read and were replaced by others. The log states the reasons.</p>\n" +
                          html_details("their names", html_table({}, names)));
}

/// Folders with the same name are distinguished by letters, or numbers if there are many.
std::vector<std::string> names_of(const std::vector<PageData>& runs) {
  constexpr std::size_t kLetters = 26;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const bool is_only = std::ranges::count(runs, runs[i].name, &PageData::name) == 1;
    const std::string mark =
        runs.size() <= kLetters ? std::string(1, static_cast<char>('A' + i)) : std::to_string(i + 1);
    names.push_back(is_only ? runs[i].name : runs[i].name + " (" + mark + ")");
  }
  return names;
}

/// A table with a column for each run or, for more than three runs, a row for each.
std::string table_of_runs(const std::string& head, const std::vector<std::string>& names, const Lines& rows) {
  constexpr std::size_t kMostColumns = 3;
  std::vector<std::string> columns = {head};
  columns.insert(columns.end(), names.begin(), names.end());
  if (names.size() <= kMostColumns) return html_table(columns, rows);
  std::vector<std::string> keys = {"run"};
  for (const auto& row : rows) keys.push_back(row.front());
  Lines by_run;
  for (std::size_t run = 0; run < names.size(); ++run) {
    by_run.push_back({names[run]});
    for (const auto& row : rows) by_run.back().push_back(row[run + 1]);
  }
  return html_table(keys, by_run);
}

Lines compared_numbers(const std::vector<PageData>& runs) {
  Lines table;
  std::set<std::string> seen;
  for (const PageData& run : runs) {
    for (const plot::Series& curve : run.curves) {
      if (!seen.insert(curve.name).second) continue;
      table.push_back({curve.name});
      for (const PageData& each : runs) table.back().push_back(last_of(each.curve(curve.name)));
    }
  }
  return table;
}

std::string value_in(const PageData& run, const std::string& key) {
  const auto found = std::find_if(run.configuration.begin(), run.configuration.end(),
                                  [&key](const Setting& setting) { return setting.name == key; });
  return found == run.configuration.end() ? "-" : found->value;
}

Lines different_settings(const std::vector<PageData>& runs) {
  Lines table;
  std::set<std::string> seen;
  for (const PageData& run : runs) {
    for (const Setting& setting : run.configuration) {
      if (!seen.insert(setting.name).second) continue;
      std::vector<std::string> row = {setting.name};
      for (const PageData& each : runs) row.push_back(value_in(each, setting.name));
      if (std::any_of(row.begin() + 2, row.end(), [&row](const std::string& value) { return value != row[1]; })) {
        table.push_back(std::move(row));
      }
    }
  }
  return table;
}

using Parts = std::vector<StepTimes::TimedPart>;

const std::string kSectionPrefix = "time/";
const std::string kWholeStep = "train_step_total";

double mean_of(const plot::Series& curve) {
  double sum = 0;
  std::size_t count = 0;
  for (const plot::Point& point : curve.points) {
    if (!std::isfinite(point.y)) continue;
    sum += point.y;
    ++count;
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

/// Means over the run, in the order in which the run names them; what the whole step has in addition to them is
/// "other".
Parts sections_of(const PageData& run) {
  Parts sections;
  double rest = 0;
  for (const plot::Series& curve : run.curves) {
    const std::string name = curve.name.substr(std::min(kSectionPrefix.size(), curve.name.size()));
    if (!curve.name.starts_with(kSectionPrefix) || name.find('/') != std::string::npos) continue;
    const double mean = mean_of(curve);
    const bool is_whole = name == kWholeStep;
    if (!is_whole) sections.push_back({name, mean});
    rest += is_whole ? mean : -mean;
  }
  if (rest > 0) sections.push_back({"other", rest});
  return sections;
}

/// Rows of parts, one after another.
plot::TimelineChart stacked_chart(const std::string& title, const std::vector<std::pair<std::string, Parts>>& rows) {
  plot::TimelineChart chart{.title = title, .x_label = "ms", .end = 0, .kinds = {}, .rows = {}, .width = kChartWidth};
  for (const auto& [row_name, parts] : rows) {
    plot::TimelineRow row{.name = row_name, .bars = {}};
    double begin = 0;
    for (const auto& [name, milliseconds] : parts) {
      const auto same = [&part = name](const plot::BarKind& kind) { return kind.name == part; };
      auto kind = std::find_if(chart.kinds.begin(), chart.kinds.end(), same);
      if (kind == chart.kinds.end()) kind = chart.kinds.insert(chart.kinds.end(), {name});
      row.bars.push_back({begin, begin + milliseconds, static_cast<std::size_t>(kind - chart.kinds.begin())});
      begin += milliseconds;
    }
    chart.end = std::max(chart.end, begin);
    chart.rows.push_back(std::move(row));
  }
  return chart;
}

std::string parts_table(const std::vector<std::pair<std::string, Parts>>& rows) {
  std::vector<std::string> head = {""};
  for (const StepTimes::TimedPart& part : rows.front().second) head.push_back(part.name + ", ms");
  Lines lines;
  for (const auto& [name, parts] : rows) {
    lines.push_back({name});
    for (const StepTimes::TimedPart& part : parts) lines.back().push_back(fmt::format("{:.3f}", part.milliseconds));
  }
  return html_table(head, lines);
}

std::vector<std::pair<std::string, Parts>> by_rank(const StepTimes& times) {
  std::vector<std::pair<std::string, Parts>> rows;
  for (std::size_t rank = 0; rank < times.ranks.size(); ++rank) {
    rows.emplace_back("rank " + std::to_string(rank), times.ranks[rank]);
  }
  return rows;
}

void add_chart(std::vector<std::string>& svgs, plot::TimelineChart chart) {
  chart.width = kChartWidth;
  if (chart.end > 0 && !chart.rows.empty()) svgs.push_back(plot::timeline_chart(chart));
}

/// The places where the time of a step goes: its sections, what ranks wait for, and with ddp.report the buckets'
/// timeline; "" where nothing of that was measured.
std::string step_section(const PageData& run) {
  std::vector<std::string> charts;
  std::string sentence;
  std::string tables;
  if (const Parts sections = sections_of(run); !sections.empty()) {
    add_chart(charts, stacked_chart("Sections of a step, mean over the run", {{"step", sections}}));
    tables += parts_table({{"mean", sections}});
  }
  if (run.step_times && !run.step_times->ranks.empty()) {
    sentence = "<p>" + escaped(run.step_times->sentence) + "</p>\n";
    add_chart(charts, stacked_chart("A median step of each rank", by_rank(*run.step_times)));
    add_chart(charts, run.step_times->timeline);
    tables += parts_table(by_rank(*run.step_times));
  }
  for (const plot::LineChart& chart : time_charts({&run}, {run.name})) charts.push_back(plot::line_chart(chart));
  return html_section("Where the time of a step goes",
                      sentence + html_charts(charts) + html_details("in numbers", tables));
}

}  // namespace

std::string run_page(const std::string& folder) {
  const PageData run = read_run(folder);
  std::string body = html_section("Outcome", html_table({}, run.status));
  body += html_section("Curves", html_lines(curve_charts({&run}, {run.name})));
  body += html_section("Errors over the predicted steps", html_lines(rollout_charts({&run}, {run.name})));
  body += fields_section(run.artifacts);
  body += tables_section(run.artifacts.tables) + pictures_section(run.artifacts.pictures);
  body += html_section("Numbers", html_table({"metric", "last", "least", "largest"}, last_numbers(run)));
  body += html_section(
      "Recoveries",
      html_table({"from step", "failure", "how", "seconds to the next step", "steps done again"}, run.recoveries));
  body += step_section(run) + replaced_section(run);
  body += configuration_section(run);
  body += html_section("Environment", html_details("host, libraries and devices", html_table({}, run.environment)));
  return html_page("Run " + run.name, body);
}

std::string comparison_page(const std::vector<std::string>& folders) {
  std::vector<PageData> runs;
  for (const std::string& folder : folders) runs.push_back(read_run(folder));
  std::vector<const PageData*> pointers;
  for (const PageData& run : runs) pointers.push_back(&run);
  const std::vector<std::string> names = names_of(runs);
  std::string list;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    list += (i == 0 ? "" : "<br/>") + escaped(names[i] + ": " + folders[i]);
  }
  std::string body = "<p>" + list + "</p>\n" + html_section("Curves", html_lines(curve_charts(pointers, names)));
  body += html_section("Errors over the predicted steps", html_lines(rollout_charts(pointers, names)));
  body += html_section("Times", html_lines(time_charts(pointers, names)));
  body += html_section("Last values", table_of_runs("metric", names, compared_numbers(runs)));
  body += html_section("Settings that differ", table_of_runs("key", names, different_settings(runs)));
  const std::vector<std::string> first(names.begin(), names.end() - 1);
  return html_page("Runs " + joined(first) + " and " + names.back(), body);
}

}  // namespace lockstep::report
