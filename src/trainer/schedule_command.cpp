// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>

#include "plot/line_chart.hpp"
#include "report/files/run_files.hpp"
#include "trainer/commands/commands.hpp"
#include "trainer/commands/table_text.hpp"

namespace lockstep::trainer {

namespace {

constexpr std::int64_t kRows = 21;
constexpr std::int64_t kPoints = 2001;

/// One option of the groups in which it goes the same way.
struct Line {
  std::string option;
  std::string groups;  ///< their names; "" for all that have it
  std::vector<std::pair<std::int64_t, double>> values;
};

/// The lines of one option after those of another.
std::vector<Line> lines_of(const std::vector<engine::RunPlan::PlannedCurve>& curves) {
  std::vector<Line> lines;
  for (const engine::RunPlan::PlannedCurve& curve : curves) {
    const auto same = std::find_if(lines.begin(), lines.end(), [&curve](const Line& line) {
      return line.option == curve.option && line.values == curve.values;
    });
    if (same != lines.end()) {
      same->groups += ", " + curve.group;
      continue;
    }
    const auto last =
        std::find_if(lines.rbegin(), lines.rend(), [&curve](const Line& line) { return line.option == curve.option; });
    lines.insert(last == lines.rend() ? lines.end() : last.base(), {curve.option, curve.group, curve.values});
  }
  for (Line& line : lines) {
    const auto of_option =
        std::count_if(lines.begin(), lines.end(), [&line](const Line& other) { return other.option == line.option; });
    if (of_option == 1) line.groups.clear();
  }
  return lines;
}

std::string schedule_table(const std::vector<Line>& lines) {
  std::vector<std::vector<std::string>> rows = {{"step"}};
  for (const auto& [step, value] : lines.front().values) rows.push_back({std::to_string(step)});
  for (const Line& line : lines) {
    rows.front().push_back(line.option + (line.groups.empty() ? "" : " of " + line.groups));
    for (std::size_t i = 0; i < line.values.size(); ++i) rows[i + 1].push_back(brief(line.values[i].second));
  }
  return table_text(rows);
}

std::string schedule_charts(const std::vector<Line>& lines) {
  std::vector<plot::LineChart> charts;
  for (const Line& line : lines) {
    if (charts.empty() || charts.back().title != line.option) {
      charts.push_back({.title = line.option, .x_label = "step", .y_label = line.option, .series = {}});
    }
    plot::Series series{.name = line.groups, .points = {}};
    for (const auto& [step, value] : line.values) series.points.push_back({static_cast<double>(step), value});
    charts.back().series.push_back(std::move(series));
  }
  return plot::line_charts(charts);
}

}  // namespace

ExitCode show_schedule(const CommandJob& job, const config::Invocation& invocation) {
  const auto plot = invocation.options.find("plot");
  const bool is_plotted = plot != invocation.options.end();
  const engine::RunPlan plan =
      engine::plan(job.world, invocation.config.sections(), job.registry, is_plotted ? kPoints : kRows);
  const std::vector<Line> lines = lines_of(plan.curves);
  job.world.all_or_throw([&] {
    if (is_plotted && job.world.is_root()) report::write_text(plot->second, schedule_charts(lines));
  });
  print_result(job.world, is_plotted ? plot->second + ": " + std::to_string(lines.size()) +
                                           (lines.size() == 1 ? " curve over " : " curves over ") +
                                           std::to_string(plan.total_steps) + " steps"
                                     : schedule_table(lines));
  for (const std::string& remark : plan.remarks) print_result(job.world, remark);
  return ExitCode::done;
}

}  // namespace lockstep::trainer
