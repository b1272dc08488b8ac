// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/plot/line_chart.hpp>
#include <lockstep/plot/ticks.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace lockstep::plot {

namespace {

// Told apart on white by hue and by lightness; from the ninth series on lines are dashed.
constexpr std::array<const char*, 8> kColours = {"#1f6fb4", "#d1495b", "#2a8c4a", "#8458b3",
                                                 "#e08214", "#0f9ba8", "#7a4a2b", "#6b7280"};
constexpr double kCharWidth = 6.7;  // of the 12 px font, on average
constexpr double kMargin = 24;
constexpr double kLegendRow = 20;
constexpr double kKeyWidth = 24;    // of the stroke before a legend's name, with the gap behind it
constexpr double kLargest = 1e300;  // beyond it, differences overflow

struct Box {
  double left, top, right, bottom;
};

struct Axes {
  Ticks x, y;
  Box box;
  bool log_y;

  double place_x(double x_value) const {
    return box.left + (x_value - x.low) / (x.high - x.low) * (box.right - box.left);
  }
  double place_y(double y_value) const {
    const auto scaled = [this](double value) { return log_y ? std::log10(value) : value; };
    const double share = (scaled(y_value) - scaled(y.low)) / (scaled(y.high) - scaled(y.low));
    return box.bottom - share * (box.bottom - box.top);
  }
};

bool is_drawable(const Point& point, bool log_y) {
  return std::abs(point.x) < kLargest && std::abs(point.y) < kLargest && (!log_y || point.y > 0);
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else if (c == '"') {
      safe += "&quot;";
    } else {
      safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;  // XML knows no control characters
    }
  }
  return safe;
}

double text_width(const std::string& text) {
  const auto is_first_byte = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return kCharWidth * static_cast<double>(std::count_if(text.begin(), text.end(), is_first_byte));
}

/// At most two decimals, and none that say nothing.
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

std::string stroke_of(std::size_t index) {
  const std::string dashes = index < kColours.size() ? "" : " stroke-dasharray=\"6 4\"";
  return fmt::format(
      "fill=\"none\" stroke=\"{}\" stroke-width=\"1.75\" stroke-linejoin=\"round\" stroke-linecap=\"round\"{}",
      kColours[index % kColours.size()], dashes);
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
      if (!is_drawable(point, chart.log_y)) continue;
      spans.x.add(point.x);
      spans.y.add(point.y);
    }
  }
  return spans;
}

Ticks x_ticks(Span span, double width) {
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

/// Names in rows, from the plot's left edge.
struct LegendEntry {
  std::size_t series;
  double x, y;
};

std::vector<LegendEntry> legend_of(const LineChart& chart, const Box& room) {
  std::vector<LegendEntry> entries;
  double x = room.left;
  double y = room.top;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    if (chart.series[i].name.empty()) continue;
    const double width = kKeyWidth + text_width(chart.series[i].name);
    if (x > room.left && x + width > room.right) {
      x = room.left;
      y += kLegendRow;
    }
    entries.push_back({i, x, y});
    x += width + 18;
  }
  return entries;
}

std::string draw_legend(const LineChart& chart, const std::vector<LegendEntry>& entries) {
  std::string svg;
  for (const LegendEntry& entry : entries) {
    svg += line_between(entry.x, entry.y - 4, entry.x + kKeyWidth - 6, entry.y - 4, stroke_of(entry.series));
    svg += text_at(entry.x + kKeyWidth, entry.y, "", chart.series[entry.series].name);
  }
  return svg;
}

std::string draw_axes(const LineChart& chart, const Axes& axes) {
  const Box& box = axes.box;
  const std::string grid = "stroke=\"#e5e7eb\"";
  const std::vector<std::string> x_labels = tick_labels(axes.x.values);
  const std::vector<std::string> y_labels = tick_labels(axes.y.values);
  std::string svg;
  for (std::size_t i = 0; i < y_labels.size(); ++i) {
    const double y = axes.place_y(axes.y.values[i]);
    svg += line_between(box.left, y, box.right, y, grid);
    svg += text_at(box.left - 8, y + 4, " text-anchor=\"end\"", y_labels[i]);
  }
  for (std::size_t i = 0; i < x_labels.size(); ++i) {
    const double x = axes.place_x(axes.x.values[i]);
    svg += line_between(x, box.bottom, x, box.bottom + 5, "stroke=\"#6b7280\"");
    svg += text_at(x, box.bottom + 19, " text-anchor=\"middle\"", x_labels[i]);
  }
  svg += line_between(box.left, box.bottom, box.right, box.bottom, "stroke=\"#6b7280\"");
  svg += text_at((box.left + box.right) / 2, box.bottom + 40, " text-anchor=\"middle\"", chart.x_label);
  const double middle = (box.top + box.bottom) / 2;
  const std::string turned = fmt::format(" text-anchor=\"middle\" transform=\"rotate(-90 18 {})\"", number(middle));
  svg += text_at(18, middle, turned, chart.y_label);
  return svg;
}

std::string draw_series(const Series& series, std::size_t index, const Axes& axes) {
  std::string path;
  std::string dots;
  for (std::size_t i = 0; i < series.points.size(); ++i) {
    const Point& point = series.points[i];
    if (!is_drawable(point, axes.log_y)) continue;
    const bool follows = i > 0 && is_drawable(series.points[i - 1], axes.log_y);
    const bool goes_on = i + 1 < series.points.size() && is_drawable(series.points[i + 1], axes.log_y);
    const std::string x = number(axes.place_x(point.x));
    const std::string y = number(axes.place_y(point.y));
    if (follows || goes_on) {
      path += (follows ? "L" : "M") + x + " " + y;
    } else {
      dots +=
          fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"3\" fill=\"{}\"/>\n", x, y, kColours[index % kColours.size()]);
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
  Axes axes{.x = {}, .y = y_ticks(spans.y, height - 120, chart.log_y), .box = {}, .log_y = chart.log_y};

  double label_width = 0;
  for (const std::string& label : tick_labels(axes.y.values)) label_width = std::max(label_width, text_width(label));
  axes.box.left = label_width + (chart.y_label.empty() ? 20 : 44);
  axes.box.right = width - kMargin;
  const auto legend = legend_of(chart, {axes.box.left, title_height + 10, axes.box.right, height});
  axes.box.top = legend.empty() ? title_height + 8 : legend.back().y + 16;
  axes.box.bottom = height - (chart.x_label.empty() ? 32 : 54);
  axes.x = x_ticks(spans.x, axes.box.right - axes.box.left);

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
      "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif\" font-size=\"12\" "
      "fill=\"#374151\">\n<title>{2}</title>\n<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
      chart.width, chart.height, escaped(chart.title));
  if (!chart.title.empty()) {
    svg += text_at(axes.box.left, 30, " font-size=\"16\" font-weight=\"600\" fill=\"#111827\"", chart.title);
  }
  svg += draw_legend(chart, legend);
  svg += draw_axes(chart, axes);
  for (std::size_t i = 0; i < chart.series.size(); ++i) svg += draw_series(chart.series[i], i, axes);
  if (spans.x.is_empty()) {
    const double middle = (axes.box.top + axes.box.bottom) / 2;
    svg += text_at((axes.box.left + axes.box.right) / 2, middle, " text-anchor=\"middle\" font-size=\"14\"", "no data");
  }
  return svg + "</svg>\n";
}

}  // namespace lockstep::plot
