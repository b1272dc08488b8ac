// SPDX-License-Identifier: BSD-3-Clause
#include "plot/histogram_chart.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "plot/svg.hpp"
#include "plot/ticks.hpp"

namespace lockstep::plot {

namespace {

constexpr double kLogFloor = 0.7;  // a bar of one element is to be seen on a logarithmic axis

Ticks count_ticks(const HistogramChart& chart) {
  const auto max = std::max_element(chart.counts.begin(), chart.counts.end());
  const auto highest = std::max(1.0, max == chart.counts.end() ? 1.0 : static_cast<double>(*max));
  if (!chart.log_y) return linear_ticks(0, highest, std::max(2, chart.height / 70), true);
  Ticks ticks = log_ticks(1, std::max(highest, 10.0));
  ticks.low = kLogFloor;
  return ticks;
}

std::string draw_bars(const HistogramChart& chart, const Axes& axes) {
  std::string svg;
  const double width = (chart.high - chart.low) / static_cast<double>(chart.counts.size());
  for (std::size_t i = 0; i < chart.counts.size(); ++i) {
    if (chart.counts[i] == 0) continue;
    const double begin = chart.low + width * static_cast<double>(i);
    const double left = axes.place_x(begin);
    const double right = axes.place_x(begin + width);
    const double top = axes.place_y(static_cast<double>(chart.counts[i]));
    const double gap = right - left > 4 ? 1 : 0;
    svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n", number(left), number(top),
                       number(right - left - gap), number(axes.box.bottom - top), kColors[0]);
  }
  return svg;
}

std::string draw_marks(const HistogramChart& chart, const Axes& axes) {
  std::string svg;
  for (const Mark& mark : chart.marks) {
    if (mark.x < axes.x.low || mark.x > axes.x.high) continue;
    const double x = axes.place_x(mark.x);
    svg += line_between(x, axes.box.top, x, axes.box.bottom, "stroke=\"#d1495b\" stroke-dasharray=\"4 3\"");
    const bool is_right = x > (axes.box.left + axes.box.right) / 2;
    svg += text_at(is_right ? x - 4 : x + 4, axes.box.top - 6, is_right ? " text-anchor=\"end\"" : "", mark.name);
  }
  return svg;
}

}  // namespace

std::string histogram_chart(const HistogramChart& chart) {
  Axes axes{.x = {}, .y = count_ticks(chart), .box = {}, .log_y = chart.log_y};
  axes.box = {.left = axis_width(axes.y, chart.y_label),
              .top = (chart.title.empty() ? 16.0 : 44.0) + (chart.marks.empty() ? 0 : 16),
              .right = chart.width - kMargin,
              .bottom = chart.height - (chart.x_label.empty() ? 32.0 : 54.0)};
  axes.x = linear_ticks(chart.low, chart.high, std::max(2, chart.width / 90), false);
  return svg_head(chart.width, chart.height, chart.title, axes.box.left) +
         draw_axes(axes, chart.x_label, chart.y_label) + draw_bars(chart, axes) + draw_marks(chart, axes) + "</svg>\n";
}

}  // namespace lockstep::plot
