// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/drawings.hpp"

#include "plot/line_chart.hpp"
#include "plot/timeline_chart.hpp"
#include "report/files/metrics_reader.hpp"
#include "report/files/run_files.hpp"
#include "report/files/step_times.hpp"

namespace lockstep::trainer {

namespace {

enum Kind : std::size_t { compute, update, transfer, wait, under_way };

const std::vector<plot::BarKind> kKinds = {
    {"compute"}, {"update"}, {"transfer"}, {"wait"}, {"under way", /*is_thin=*/true}};

plot::Bar bar(double begin_s, double end_s, Kind kind) { return {1000 * begin_s, 1000 * end_s, kind}; }

std::vector<report::StepTimes::TimedPart> parts_of(const parallel::StepTimeline& step) {
  return {{"compute", 1000 * step.compute()},
          {"update", 1000 * step.update()},
          {"transfer", 1000 * step.transfer()},
          {"wait", 1000 * step.wait()}};
}

}  // namespace

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

void draw_ddp_report(const parallel::DdpReport& report, const std::string& folder) {
  if (report.steps == 0 || report.ranks.size() < 2) return;
  const std::size_t slowest = parallel::slowest_rank(report);
  const parallel::StepTimeline& step = report.ranks[slowest];
  plot::TimelineChart chart{.title = "A step of rank " + std::to_string(slowest) + ", the slowest",
                            .x_label = "ms",
                            .end = 1000 * step.end,
                            .kinds = kKinds,
                            .rows = {}};
  chart.rows.push_back({"step", {bar(0, step.backward_end, compute), bar(step.meeting_begin, step.meeting_end, wait)}});
  if (step.undivided_update > 0) {
    chart.rows.back().bars.push_back(bar(step.end - step.undivided_update, step.end, update));
  }
  for (std::size_t b = 0; b < step.buckets.size(); ++b) {
    const parallel::BucketTimes& times = step.buckets[b];
    chart.rows.push_back(
        {"bucket " + std::to_string(b),
         {bar(times.launched, times.wait_begin, under_way), bar(times.wait_begin, times.wait_end, wait),
          bar(times.visit_begin, times.visit_begin + times.transfer, transfer),
          bar(times.visit_end - times.update, times.visit_end, update)}});
  }
  report::write_text(folder + "/ddp.svg", plot::timeline_chart(chart));
  report::StepTimes times{.sentence = parallel::bound_sentence(report), .ranks = {}, .timeline = std::move(chart)};
  for (const parallel::StepTimeline& rank : report.ranks) times.ranks.push_back(parts_of(rank));
  report::write_step_times(folder, times);
}

}  // namespace lockstep::trainer
