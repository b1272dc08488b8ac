// SPDX-License-Identifier: BSD-3-Clause
#include "plot/timeline_chart.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/text/table.hpp"
#include "plot/svg.hpp"
#include "plot/ticks.hpp"

namespace lockstep::plot {

namespace {

constexpr double kRankRowHeight = 22;
constexpr double kTimelineBarHeight = 14;
constexpr double kThinHeight = 3;

const char* color_of(std::size_t kind) { return kColors[kind % kColors.size()]; }

/// @param middle  of the bar's height
std::string draw_box(double left, double right, double middle, double height, std::size_t kind) {
  return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n", number(left),
                     number(middle - height / 2), number(right - left), number(height), color_of(kind));
}

double height_of(const BarKind& kind) { return kind.is_thin ? kThinHeight : kTimelineBarHeight; }

std::string draw_legend(const TimelineChart& chart, const std::vector<LegendEntry>& entries) {
  std::string svg;
  for (const LegendEntry& entry : entries) {
    const BarKind& kind = chart.kinds[entry.index];
    svg += draw_box(entry.x, entry.x + kKeyWidth - 6, entry.y - 4, std::min(height_of(kind), 10.0), entry.index);
    svg += text_at(entry.x + kKeyWidth, entry.y, "", kind.name);
  }
  return svg;
}

}  // namespace

std::string timeline_chart(const TimelineChart& chart) {
  PlotBox box{.left = 0, .top = chart.title.empty() ? 16.0 : 44.0, .right = chart.width - kMargin, .bottom = 0};
  for (const TimelineRow& row : chart.rows) box.left = std::max(box.left, text_width(row.name));
  box.left += 20;
  const auto legend = legend_of(names_of(chart.kinds), {box.left, box.top + 10, box.right, 0});
  if (!legend.empty()) box.top = legend.back().y + 10;
  box.bottom = box.top + kRankRowHeight * static_cast<double>(chart.rows.size()) + 6;
  const Ticks ticks = linear_ticks(0, chart.end, std::max(2, static_cast<int>((box.right - box.left) / 90)), false);

  const int height = static_cast<int>(box.bottom) + (chart.x_label.empty() ? 32 : 54);
  std::string svg = svg_head(chart.width, height, chart.title, box.left);
  svg += draw_legend(chart, legend);
  for (const double value : ticks.values) {
    const double x = place_x(ticks, box, value);
    svg += line_between(x, box.top, x, box.bottom, kGridStroke);
  }
  svg += draw_x_axis(ticks, box, chart.x_label);
  double middle = box.top + kRankRowHeight / 2 + 3;
  for (const TimelineRow& row : chart.rows) {
    svg += text_at(box.left - 8, middle + 4, " text-anchor=\"end\"", row.name);
    for (const Bar& bar : row.bars) {
      const double begin = std::max(bar.begin, 0.0);
      const double end = std::min(bar.end, chart.end);
      if (!(begin < end)) continue;
      svg += draw_box(place_x(ticks, box, begin), place_x(ticks, box, end), middle, height_of(chart.kinds.at(bar.kind)),
                      bar.kind);
    }
    middle += kRankRowHeight;
  }
  return svg + "</svg>\n";
}

}  // namespace lockstep::plot
