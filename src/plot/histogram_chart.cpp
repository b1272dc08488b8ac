// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/plot/histogram_chart.hpp>
#include <lockstep/plot/ticks.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "svg.hpp"

namespace lockstep::plot {

namespace {

constexpr double kLogFloor = 0.7;  // a bar of one element is to be seen on a logarithmic axis

struct Axes {
  Ticks x, y;
  Box box;
  bool log_y;

  double place_y(double value) const {
    const auto scaled = [this](double count) { return log_y ? std::log10(count) : count; };
    const double share = (scaled(value) - scaled(y.low)) / (scaled(y.high) - scaled(y.low));
    return box.bottom - share * (box.bottom - box.top);
  }
};

Ticks count_ticks(const HistogramChart& chart) {
  const auto most = std::max_element(chart.counts.begin(), chart.counts.end());
  const auto highest = std::max(1.0, most == chart.counts.end() ? 1.0 : static_cast<double>(*most));
  if (!chart.log_y) return linear_ticks(0, highest, std::max(2, chart.height / 70), true);
  Ticks ticks = log_ticks(1, std::max(highest, 10.0));
  ticks.low = kLogFloor;
  return ticks;
}

std::string draw_axes(const HistogramChart& chart, const Axes& axes) {
  const Box& box = axes.box;
  const std::vector<std::string> labels = tick_labels(axes.y.values);
  std::string svg;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double y = axes.place_y(axes.y.values[i]);
    svg += line_between(box.left, y, box.right, y, kGridStroke);
    svg += text_at(box.left - 8, y + 4, " text-anchor=\"end\"", labels[i]);
  }
  svg += draw_x_axis(axes.x, box, chart.x_label);
  const double middle = (box.top + box.bottom) / 2;
  const std::string turned = fmt::format(" text-anchor=\"middle\" transform=\"rotate(-90 18 {})\"", number(middle));
  return svg + text_at(18, middle, turned, chart.y_label);
}

std::string draw_bars(const HistogramChart& chart, const Axes& axes) {
  std::string svg;
  const double width = (chart.high - chart.low) / static_cast<double>(chart.counts.size());
  for (std::size_t i = 0; i < chart.counts.size(); ++i) {
    if (chart.counts[i] == 0) continue;
    const double begin = chart.low + width * static_cast<double>(i);
    const double left = place_x(axes.x, axes.box, begin);
    const double right = place_x(axes.x, axes.box, begin + width);
    const double top = axes.place_y(static_cast<double>(chart.counts[i]));
    const double gap = right - left > 4 ? 1 : 0;
    svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n", number(left), number(top),
                       number(right - left - gap), number(axes.box.bottom - top), kColours[0]);
  }
  return svg;
}

std::string draw_marks(const HistogramChart& chart, const Axes& axes) {
  std::string svg;
  for (const Mark& mark : chart.marks) {
    if (mark.x < axes.x.low || mark.x > axes.x.high) continue;
    const double x = place_x(axes.x, axes.box, mark.x);
    svg += line_between(x, axes.box.top, x, axes.box.bottom, "stroke=\"#d1495b\" stroke-dasharray=\"4 3\"");
    const bool is_right = x > (axes.box.left + axes.box.right) / 2;
    svg += text_at(is_right ? x - 4 : x + 4, axes.box.top - 6, is_right ? " text-anchor=\"end\"" : "", mark.name);
  }
  return svg;
}

}  // namespace

std::string histogram_chart(const HistogramChart& chart) {
  Axes axes{.x = {}, .y = count_ticks(chart), .box = {}, .log_y = chart.log_y};
  double label_width = 0;
  for (const std::string& label : tick_labels(axes.y.values)) label_width = std::max(label_width, text_width(label));
  axes.box = {.left = label_width + (chart.y_label.empty() ? 20 : 44),
              .top = (chart.title.empty() ? 16.0 : 44.0) + (chart.marks.empty() ? 0 : 16),
              .right = chart.width - kMargin,
              .bottom = chart.height - (chart.x_label.empty() ? 32.0 : 54.0)};
  axes.x = linear_ticks(chart.low, chart.high, std::max(2, chart.width / 90), false);
  return svg_head(chart.width, chart.height, chart.title, axes.box.left) + draw_axes(chart, axes) +
         draw_bars(chart, axes) + draw_marks(chart, axes) + "</svg>\n";
}

}  // namespace lockstep::plot
