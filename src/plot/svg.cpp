// SPDX-License-Identifier: BSD-3-Clause
#include "plot/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/text/text.hpp"
#include "plot/markup.hpp"

namespace lockstep::plot {

namespace {

constexpr double kCharWidth = 6.7;

}  // namespace

double text_width(const std::string& text) { return kCharWidth * static_cast<double>(character_count(text)); }

std::string number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string text_at(double x, double y, const std::string& attributes, const std::string& text) {
  return fmt::format("<text x=\"{}\" y=\"{}\"{}>{}</text>\n", number(x), number(y), attributes, escaped(text));
}

std::string line_between(double x1, double y1, double x2, double y2, const std::string& stroke) {
  return fmt::format("<path d=\"M{} {}L{} {}\" {}/>\n", number(x1), number(y1), number(x2), number(y2), stroke);
}

std::string svg_head(int width, int height, const std::string& title, double left) {
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
      "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif\" font-size=\"12\" "
      "fill=\"#374151\">\n<title>{2}</title>\n<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
      width, height, escaped(title));
  if (!title.empty()) svg += text_at(left, 30, " font-size=\"16\" font-weight=\"600\" fill=\"#111827\"", title);
  return svg;
}

double place_x(const Ticks& ticks, const PlotBox& box, double value) {
  return box.left + (value - ticks.low) / (ticks.high - ticks.low) * (box.right - box.left);
}

std::string draw_x_axis(const Ticks& ticks, const PlotBox& box, const std::string& label) {
  const std::vector<std::string> labels = tick_labels(ticks.values);
  std::string svg;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double x = place_x(ticks, box, ticks.values[i]);
    svg += line_between(x, box.bottom, x, box.bottom + 5, "stroke=\"#6b7280\"");
    svg += text_at(x, box.bottom + 19, " text-anchor=\"middle\"", labels[i]);
  }
  svg += line_between(box.left, box.bottom, box.right, box.bottom, "stroke=\"#6b7280\"");
  svg += text_at((box.left + box.right) / 2, box.bottom + 40, " text-anchor=\"middle\"", label);
  return svg;
}

double Axes::place_y(double value) const {
  const auto scaled = [this](double v) { return log_y ? std::log10(v) : v; };
  const double share = (scaled(value) - scaled(y.low)) / (scaled(y.high) - scaled(y.low));
  return box.bottom - share * (box.bottom - box.top);
}

double axis_width(const Ticks& y, const std::string& name) {
  double widest = 0;
  for (const std::string& label : tick_labels(y.values)) widest = std::max(widest, text_width(label));
  return widest + (name.empty() ? 20 : 44);
}

std::string draw_axes(const Axes& axes, const std::string& x_label, const std::string& y_label) {
  const PlotBox& box = axes.box;
  const std::vector<std::string> labels = tick_labels(axes.y.values);
  std::string svg;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double y = axes.place_y(axes.y.values[i]);
    svg += line_between(box.left, y, box.right, y, kGridStroke);
    svg += text_at(box.left - 8, y + 4, " text-anchor=\"end\"", labels[i]);
  }
  svg += draw_x_axis(axes.x, box, x_label);
  const double middle = (box.top + box.bottom) / 2;
  const std::string turned = fmt::format(" text-anchor=\"middle\" transform=\"rotate(-90 18 {})\"", number(middle));
  return svg + text_at(18, middle, turned, y_label);
}

std::vector<LegendEntry> legend_of(const std::vector<std::string>& names, const PlotBox& room) {
  std::vector<LegendEntry> entries;
  double x = room.left;
  double y = room.top;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) continue;
    const double width = kKeyWidth + text_width(names[i]);
    if (x > room.left && x + width > room.right) {
      x = room.left;
      y += kLegendRow;
    }
    entries.push_back({i, x, y});
    x += width + 18;
  }
  return entries;
}

}  // namespace lockstep::plot
