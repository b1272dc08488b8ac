// SPDX-License-Identifier: BSD-3-Clause
#include "plot/line_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/text/table.hpp"
#include "plot/svg.hpp"
#include "plot/ticks.hpp"

namespace lockstep::plot {

namespace {

constexpr double kLargest = 1e300;  // beyond it, differences overflow

/// @param chart  a LineChart or Axes
template <class Chart>
bool is_drawable(const Point& point, const Chart& chart) {
  return std::abs(point.x) < kLargest && std::abs(point.y) < kLargest && (!chart.log_y || point.y > 0) &&
         (!chart.log_x || point.x > 0);
}

/// Lines are dashed from the ninth series on.
std::string stroke_of(std::size_t index) {
  const std::string dashes = index < kColors.size() ? "" : " stroke-dasharray=\"6 4\"";
  return fmt::format(
      "fill=\"none\" stroke=\"{}\" stroke-width=\"1.75\" stroke-linejoin=\"round\" stroke-linecap=\"round\"{}",
      kColors[index % kColors.size()], dashes);
}

struct Span {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool is_empty() const { return low > high; }
};

struct Spans {
  Span x, y;
};

Spans spans_of(const LineChart& chart) {
  Spans spans;
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) {
      if (!is_drawable(point, chart)) continue;
      spans.x.add(point.x);
      spans.y.add(point.y);
    }
  }
  return spans;
}

Ticks x_ticks(Span span, double width, bool log_x) {
  if (log_x) return span.is_empty() ? log_ticks(1, 10) : log_ticks(span.low, span.high);
  const int wanted = std::max(2, static_cast<int>(width / 90));
  if (span.is_empty()) return linear_ticks(0, 1, wanted, false);
  const bool is_near_zero = span.low > 0 && span.low < 0.1 * span.high;  // steps that begin at 10 are shown from 0
  return linear_ticks(is_near_zero ? 0 : span.low, span.high, wanted, false);
}

Ticks y_ticks(Span span, double height, bool log_y) {
  const int wanted = std::max(2, static_cast<int>(height / 60));
  if (log_y) return span.is_empty() ? log_ticks(0.1, 1) : log_ticks(span.low, span.high);
  return span.is_empty() ? linear_ticks(0, 1, wanted, true) : linear_ticks(span.low, span.high, wanted, true);
}

/// Both axes of a chart, each of which can be logarithmic.
struct Axes {
  Ticks x, y;
  PlotBox box;
  bool log_y;
  bool log_x;

  double place_x(double value) const { return plot::place_x(x, box, value, log_x); }
  double place_y(double value) const {
    const auto scaled = [this](double v) { return log_y ? std::log10(v) : v; };
    const double share = (scaled(value) - scaled(y.low)) / (scaled(y.high) - scaled(y.low));
    return box.bottom - share * (box.bottom - box.top);
  }
};

/// Space next to the vertical axis for its labels and its name.
double axis_width(const Ticks& y, const std::string& name) {
  double widest = 0;
  for (const std::string& label : tick_labels(y.values)) widest = std::max(widest, text_width(label));
  return widest + (name.empty() ? 20 : 44);
}

/// A line across at each of y's values with its label, and the names of both axes.
std::string draw_axes(const Axes& axes, const std::string& x_label, const std::string& y_label) {
  const PlotBox& box = axes.box;
  const std::vector<std::string> labels = tick_labels(axes.y.values);
  std::string svg;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double y = axes.place_y(axes.y.values[i]);
    svg += line_between(box.left, y, box.right, y, kGridStroke);
    svg += text_at(box.left - 8, y + 4, " text-anchor=\"end\"", labels[i]);
  }
  svg += draw_x_axis(axes.x, box, x_label, axes.log_x);
  const double middle = (box.top + box.bottom) / 2;
  const std::string turned = fmt::format(" text-anchor=\"middle\" transform=\"rotate(-90 18 {})\"", number(middle));
  return svg + text_at(18, middle, turned, y_label);
}

std::string draw_legend(const LineChart& chart, const std::vector<LegendEntry>& entries) {
  std::string svg;
  for (const LegendEntry& entry : entries) {
    svg += line_between(entry.x, entry.y - 4, entry.x + kKeyWidth - 6, entry.y - 4, stroke_of(entry.index));
    svg += text_at(entry.x + kKeyWidth, entry.y, "", chart.series[entry.index].name);
  }
  return svg;
}

std::string draw_series(const Series& series, std::size_t index, const Axes& axes) {
  std::string path;
  std::string dots;
  for (std::size_t i = 0; i < series.points.size(); ++i) {
    const Point& point = series.points[i];
    if (!is_drawable(point, axes)) continue;
    const bool follows = i > 0 && is_drawable(series.points[i - 1], axes);
    const bool goes_on = i + 1 < series.points.size() && is_drawable(series.points[i + 1], axes);
    const std::string x = number(axes.place_x(point.x));
    const std::string y = number(axes.place_y(point.y));
    if (follows || goes_on) {
      path += (follows ? "L" : "M") + x + " " + y;
    } else {
      dots += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"3\" fill=\"{}\"/>\n", x, y, kColors[index % kColors.size()]);
    }
  }
  return (path.empty() ? "" : fmt::format("<path d=\"{}\" {}/>\n", path, stroke_of(index))) + dots;
}

}  // namespace

std::string line_chart(const LineChart& chart) {
  const Spans spans = spans_of(chart);
  const double width = chart.width;
  const double height = chart.height;
  const double title_height = chart.title.empty() ? 16 : 44;
  Axes axes{
      .x = {}, .y = y_ticks(spans.y, height - 120, chart.log_y), .box = {}, .log_y = chart.log_y, .log_x = chart.log_x};

  axes.box.left = axis_width(axes.y, chart.y_label);
  axes.box.right = width - kMargin;
  const auto legend = legend_of(names_of(chart.series), {axes.box.left, title_height + 10, axes.box.right, height});
  axes.box.top = legend.empty() ? title_height + 8 : legend.back().y + 16;
  axes.box.bottom = height - (chart.x_label.empty() ? 32 : 54);
  axes.x = x_ticks(spans.x, axes.box.right - axes.box.left, chart.log_x);

  std::string svg = svg_head(chart.width, chart.height, chart.title, axes.box.left);
  svg += draw_legend(chart, legend);
  svg += draw_axes(axes, chart.x_label, chart.y_label);
  for (std::size_t i = 0; i < chart.series.size(); ++i) svg += draw_series(chart.series[i], i, axes);
  if (spans.x.is_empty()) {
    const double middle = (axes.box.top + axes.box.bottom) / 2;
    svg += text_at((axes.box.left + axes.box.right) / 2, middle, " text-anchor=\"middle\" font-size=\"14\"", "no data");
  }
  return svg + "</svg>\n";
}

std::string line_charts(const std::vector<LineChart>& charts) {
  if (charts.size() == 1) return line_chart(charts.front());
  int width = 0;
  int height = 0;
  std::string inner;
  for (const LineChart& chart : charts) {
    inner += fmt::format("<svg y=\"{}\"", height) + line_chart(chart).substr(4);  // skips its "<svg"
    width = std::max(width, chart.width);
    height += chart.height;
  }
  return svg_head(width, height, "", 0) + inner + "</svg>\n";
}

}  // namespace lockstep::plot
