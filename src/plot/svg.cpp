// SPDX-License-Identifier: BSD-3-Clause
#include "plot/svg.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "core/text/text.hpp"

namespace lockstep::plot {

namespace {

constexpr double kCharWidth = 6.7;

// Told apart on a dark ground, in the order of kColors.
constexpr std::array<const char*, kColors.size()> kDarkColors = {"#6cb2f0", "#f2808f", "#63c384", "#bf9bea",
                                                                 "#f5b04c", "#4fd0dd", "#c99676", "#a3abb8"};

// The styles that charts draw texts, axes and grids with, and the page's variable for it.
constexpr std::array<std::pair<const char*, const char*>, 4> kShared = {
    {{"#111827", "--ink"}, {"#374151", "--text"}, {"#6b7280", "--muted"}, {"#e5e7eb", "--line"}}};

std::string rule(const std::string& color, const std::string& variable) {
  return fmt::format("svg[fill=\"{0}\"],svg [fill=\"{0}\"]{{fill:var({1})}}\nsvg [stroke=\"{0}\"]{{stroke:var({1})}}\n",
                     color, variable);
}

template <class Colors>
std::string variables(const Colors& colors) {
  std::string text;
  for (std::size_t i = 0; i < colors.size(); ++i) text += fmt::format("--series-{}:{};", i, colors[i]);
  return ":root{" + text + "}";
}

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

double place_x(const Ticks& ticks, const PlotBox& box, double value, bool is_log) {
  const auto scaled = [is_log](double v) { return is_log ? std::log10(v) : v; };
  const double share = (scaled(value) - scaled(ticks.low)) / (scaled(ticks.high) - scaled(ticks.low));
  return box.left + share * (box.right - box.left);
}

std::string draw_x_axis(const Ticks& ticks, const PlotBox& box, const std::string& label, bool is_log) {
  const std::vector<std::string> labels = tick_labels(ticks.values);
  std::string svg;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double x = place_x(ticks, box, ticks.values[i], is_log);
    svg += line_between(x, box.bottom, x, box.bottom + 5, "stroke=\"#6b7280\"");
    svg += text_at(x, box.bottom + 19, " text-anchor=\"middle\"", labels[i]);
  }
  svg += line_between(box.left, box.bottom, box.right, box.bottom, "stroke=\"#6b7280\"");
  svg += text_at((box.left + box.right) / 2, box.bottom + 40, " text-anchor=\"middle\"", label);
  return svg;
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
      safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;  // XML knows hardly any control character
    }
  }
  return safe;
}

std::string page_style() {
  std::string css = variables(kColors) + "\n@media (prefers-color-scheme:dark){" + variables(kDarkColors) + "}\n";
  for (std::size_t i = 0; i < kColors.size(); ++i) css += rule(kColors[i], fmt::format("--series-{}", i));
  for (const auto& [color, variable] : kShared) css += rule(color, variable);
  return css + "svg>rect[fill=\"#ffffff\"]{fill:none}\nsvg text[fill=\"#ffffff\"]{fill:var(--card)}\n";
}

}  // namespace lockstep::plot
