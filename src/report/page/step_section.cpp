// SPDX-License-Identifier: BSD-3-Clause
#include "report/page/step_section.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plot/markup.hpp"
#include "report/page/curve_charts.hpp"
#include "report/page/html.hpp"

namespace lockstep::report {

namespace {

using Lines = std::vector<std::vector<std::string>>;
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

}  // namespace

std::string step_section(const PageData& run) {
  std::vector<std::string> charts;
  std::string sentence;
  std::string tables;
  if (const Parts sections = sections_of(run); !sections.empty()) {
    add_chart(charts, stacked_chart("Sections of a step, mean over the run", {{"step", sections}}));
    tables += parts_table({{"mean", sections}});
  }
  if (run.step_times && !run.step_times->ranks.empty()) {
    sentence = "<p>" + plot::escaped(run.step_times->sentence) + "</p>\n";
    add_chart(charts, stacked_chart("A median step of each rank", by_rank(*run.step_times)));
    add_chart(charts, run.step_times->timeline);
    tables += parts_table(by_rank(*run.step_times));
  }
  for (const plot::LineChart& chart : time_charts({&run}, {run.name})) charts.push_back(plot::line_chart(chart));
  return html_section("Where the time of a step goes",
                      sentence + html_charts(charts) + html_details("in numbers", tables));
}

}  // namespace lockstep::report
