// SPDX-License-Identifier: BSD-3-Clause

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/text/parse_value.hpp"
#include "engine/session.hpp"
#include "plot/line_chart.hpp"
#include "report/files/run_files.hpp"
#include "trainer/commands/commands.hpp"
#include "trainer/commands/derived_keys.hpp"
#include "trainer/commands/table_text.hpp"

namespace lockstep::trainer {

namespace {

constexpr std::size_t kLrRows = 20;

double number_of(const config::Invocation& invocation, const std::string& name, double value) {
  const auto found = invocation.options.find(name);
  if (found == invocation.options.end()) return value;
  if (const auto number = parse_real(found->second)) return *number;
  throw ConfigError("command line: --" + name + ": '" + found->second + "' is not a number");
}

std::string points_table(const std::vector<engine::LrPoint>& points) {
  std::vector<std::vector<std::string>> rows = {{"lr", "loss", "mean loss"}};
  const std::size_t stride = (points.size() + kLrRows - 1) / kLrRows;
  for (std::size_t i = 0; i < points.size(); i += stride) {
    rows.push_back({brief(points[i].lr), brief(points[i].loss), brief(points[i].smoothed)});
  }
  return table_text(rows);
}

std::string points_chart(const std::vector<engine::LrPoint>& points, std::optional<double> suggestion) {
  plot::LineChart chart{
      .title = suggestion ? fmt::format("Suggested learning rate: {:.2g}", *suggestion) : "Learning rates",
      .x_label = "log10 of the learning rate",
      .y_label = "loss",
      .series = {{"steps", {}}, {"mean", {}}}};
  for (const engine::LrPoint& point : points) {
    chart.series[0].points.push_back({std::log10(point.lr), point.loss});
    chart.series[1].points.push_back({std::log10(point.lr), point.smoothed});
  }
  if (suggestion) {
    const double x = std::log10(*suggestion);
    const auto position =
        std::find_if(points.begin(), points.end(), [&](const auto& p) { return p.lr == *suggestion; });
    chart.series.push_back({"suggestion", {{x, position->smoothed}}});
  }
  return plot::line_chart(chart);
}

}  // namespace

ExitCode find_lr(const CommandJob& job, const config::Invocation& invocation) {
  engine::LrRange range;
  job.world.all_or_throw([&] {
    range.lowest = number_of(invocation, "lowest", range.lowest);
    range.highest = number_of(invocation, "highest", range.highest);
    range.steps = static_cast<std::int64_t>(number_of(invocation, "steps", static_cast<double>(range.steps)));
  });
  config::Config config = invocation.config;
  settle_teacher(job, config);
  const std::vector<engine::LrPoint> points = engine::find_lr(job.world, config.sections(), job.registry, range);
  const std::optional<double> suggestion = engine::suggested_lr(points);
  const auto curve = invocation.options.find("curve");
  job.world.all_or_throw([&] {
    if (curve != invocation.options.end() && job.world.is_root()) {
      report::write_text(curve->second, points_chart(points, suggestion));
    }
  });
  print_result(job.world, points_table(points));
  if (static_cast<std::int64_t>(points.size()) < range.steps) {
    print_result(job.world, fmt::format("the loss diverged after {} of {} steps", points.size(), range.steps));
  }
  print_result(job.world, suggestion ? fmt::format("the loss decreases fastest with --optim.lr={:.2g}", *suggestion)
                                     : "the loss did not decrease; set other bounds with --lowest and --highest");
  return ExitCode::done;
}

}  // namespace lockstep::trainer
