// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/curves.hpp"

#include "plot/line_chart.hpp"
#include "report/files/metrics_reader.hpp"
#include "report/files/run_files.hpp"

namespace lockstep::trainer {

void draw_curves(const std::string& folder) {
  plot::LineChart chart{.title = "Loss", .x_label = "step", .y_label = "loss", .series = {}, .log_y = true};
  const std::vector<std::pair<const char*, const char*>> curves = {{"loss", "training"},
                                                                   {"val/loss", "validation split"}};
  for (const auto& [key, name] : curves) {
    plot::Series series{.name = name, .points = {}};
    for (const auto& [step, value] : report::read_series(folder + "/metrics.jsonl", key)) {
      series.points.push_back({static_cast<double>(step), value});
    }
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  if (!chart.series.empty()) report::write_text(folder + "/loss.svg", plot::line_chart(chart));
}

}  // namespace lockstep::trainer
