// SPDX-License-Identifier: BSD-3-Clause
#include "plot/bar_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "plot/svg.hpp"
#include "plot/ticks.hpp"

namespace lockstep::plot {

namespace {

constexpr double kBarRowHeight = 20;
constexpr double kBarHeight = 12;
constexpr double kDotRadius = 4;
constexpr const char* kBandColor = "#dcefe1";

bool is_drawable(double value, bool log_x) { return std::abs(value) < 1e300 && (!log_x || value > 0); }

struct Scale {
  Ticks ticks;
  Box box;
  bool log_x;

  double place(double value) const {
    const auto scaled = [this](double x) { return log_x ? std::log10(x) : x; };
    const double share = (scaled(value) - scaled(ticks.low)) / (scaled(ticks.high) - scaled(ticks.low));
    return box.left + std::clamp(share, 0.0, 1.0) * (box.right - box.left);
  }
};

/// What the values span; on a linear axis from 0.
Ticks ticks_of(const BarChart& chart, double width) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  const auto add = [&](double value) {
    if (!is_drawable(value, chart.log_x)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  };
  for (const BarChartRow& row : chart.rows) std::for_each(row.values.begin(), row.values.end(), add);
  if (chart.band) {
    add(chart.band->low);
    add(chart.band->high);
  }
  if (!chart.log_x) add(0.0);
  if (low > high) return chart.log_x ? log_ticks(0.1, 1) : linear_ticks(0, 1, 4, true);
  if (!chart.log_x) return linear_ticks(low, high, std::max(2, static_cast<int>(width / 90)), true);
  return log_ticks(low * 0.8, high);  // the shortest bar is to be seen, too
}

std::string rectangle(double left, double top, double width, double height, const std::string& fill) {
  return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n", number(left), number(top),
                     number(width), number(height), fill);
}

std::string dot(double x, double y, std::size_t kind) {
  return fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"/>\n", number(x), number(y), number(kDotRadius),
                     kColors[kind % kColors.size()]);
}

std::string draw_key(std::size_t index, double x, double y, std::size_t kinds) {
  if (index == kinds) return rectangle(x, y - 9, kKeyWidth - 6, 10, kBandColor);
  if (index == 0) return rectangle(x, y - 9, kKeyWidth - 6, 10, kColors[0]);
  return dot(x + (kKeyWidth - 6) / 2, y - 4, index);
}

std::string draw_axis(const Scale& scale, const std::string& label) {
  const std::vector<std::string> labels = tick_labels(scale.ticks.values);
  std::string svg;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double x = scale.place(scale.ticks.values[i]);
    svg += line_between(x, scale.box.top, x, scale.box.bottom, kGridStroke);
    svg += text_at(x, scale.box.bottom + 19, " text-anchor=\"middle\"", labels[i]);
  }
  svg += line_between(scale.box.left, scale.box.bottom, scale.box.right, scale.box.bottom, "stroke=\"#6b7280\"");
  return svg + text_at((scale.box.left + scale.box.right) / 2, scale.box.bottom + 40, " text-anchor=\"middle\"", label);
}

std::string draw_row(const BarChartRow& row, double middle, const Scale& scale) {
  std::string svg = text_at(scale.box.left - 8, middle + 4, " text-anchor=\"end\"", row.name);
  const double from = scale.log_x ? scale.box.left : scale.place(0.0);
  double right = scale.box.left;
  std::string written;
  for (std::size_t kind = 0; kind < row.values.size(); ++kind) {
    const double value = row.values[kind];
    if (!is_drawable(value, scale.log_x)) {
      written += (written.empty() ? "" : ", ") + fmt::format("{:g}", value);
      continue;
    }
    const double x = scale.place(value);
    right = std::max(right, x + kDotRadius);
    svg += kind == 0 ? rectangle(std::min(from, x), middle - kBarHeight / 2, std::abs(x - from), kBarHeight, kColors[0])
                     : dot(x, middle, kind);
  }
  return svg + (written.empty() ? "" : text_at(right + 6, middle + 4, " fill=\"#6b7280\"", written));
}

}  // namespace

std::string bar_chart(const BarChart& chart) {
  std::vector<std::string> names = chart.kinds;
  if (names.size() == 1 && !chart.band) names[0].clear();  // a single kind is what the axis says
  if (chart.band) names.push_back(chart.band->name);
  Scale scale{.ticks = {}, .box = {}, .log_x = chart.log_x};
  Box& box = scale.box;
  box = {.left = 0, .top = chart.title.empty() ? 16.0 : 44.0, .right = chart.width - kMargin, .bottom = 0};
  for (const BarChartRow& row : chart.rows) box.left = std::max(box.left, text_width(row.name));
  box.left += 20;
  const auto legend = legend_of(names, {box.left, box.top + 10, box.right, 0});
  if (!legend.empty()) box.top = legend.back().y + 10;
  box.bottom = box.top + kBarRowHeight * static_cast<double>(std::max<std::size_t>(chart.rows.size(), 1)) + 6;
  scale.ticks = ticks_of(chart, box.right - box.left);

  const int height = static_cast<int>(box.bottom) + (chart.x_label.empty() ? 32 : 54);
  std::string svg = svg_head(chart.width, height, chart.title, box.left);
  for (const LegendEntry& entry : legend) {
    svg += draw_key(entry.index, entry.x, entry.y, chart.kinds.size());
    svg += text_at(entry.x + kKeyWidth, entry.y, "", names[entry.index]);
  }
  if (chart.band) {
    const double left = scale.place(chart.band->low);
    svg += rectangle(left, box.top, scale.place(chart.band->high) - left, box.bottom - box.top, kBandColor);
  }
  svg += draw_axis(scale, chart.x_label);
  double middle = box.top + kBarRowHeight / 2 + 3;
  for (const BarChartRow& row : chart.rows) {
    svg += draw_row(row, middle, scale);
    middle += kBarRowHeight;
  }
  if (chart.rows.empty()) {
    svg += text_at((box.left + box.right) / 2, middle + 4, " text-anchor=\"middle\" font-size=\"14\"", "no data");
  }
  return svg + "</svg>\n";
}

}  // namespace lockstep::plot
