// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "plot/ticks.hpp"

// What charts are drawn with.
namespace lockstep::plot {

// Told apart on white by hue and by lightness.
inline constexpr std::array<const char*, 8> kColors = {"#1f6fb4", "#d1495b", "#2a8c4a", "#8458b3",
                                                       "#e08214", "#0f9ba8", "#7a4a2b", "#6b7280"};
inline constexpr const char* kGridStroke = "stroke=\"#e5e7eb\"";
inline constexpr double kMargin = 24;
inline constexpr double kLegendRow = 20;
inline constexpr double kKeyWidth = 24;  // width of the key before a legend's name, with the gap behind it

struct PlotBox {
  double left, top, right, bottom;
};

/// A width in pixels, of the 12 px font, on average.
double text_width(const std::string& text);

/// The number with at most two decimals, and none that say nothing.
std::string number(double value);

/// @param attributes  of the element, each after a blank
std::string text_at(double x, double y, const std::string& attributes, const std::string& text);
std::string line_between(double x1, double y1, double x2, double y2, const std::string& stroke);

/// The image's beginning: size, font, white ground, and the title unless it is empty.
std::string svg_head(int width, int height, const std::string& title, double left);

/// @param is_log  whether the axis is logarithmic
double place_x(const Ticks& ticks, const PlotBox& box, double value, bool is_log = false);

/// The line below `box` with its marks and its name.
std::string draw_x_axis(const Ticks& ticks, const PlotBox& box, const std::string& label, bool is_log = false);

/// Names in rows, from the left edge of their room.
struct LegendEntry {
  std::size_t index;  ///< index of the name
  double x, y;        ///< start of the key before the name, on the text's base line
};

/// Places for all names that are not empty.
std::vector<LegendEntry> legend_of(const std::vector<std::string>& names, const PlotBox& room);

/// Text as it may stand in XML and HTML, in attributes too. Control characters become blanks, the end of a line too.
std::string escaped(const std::string& text);

/// CSS rules for charts that stand in the text of a page: they take the page's variables `--ink`, `--text`, `--muted`
/// and `--line` for their texts and lines (`--card` for texts on dark cells), leave the ground to the page, and have
/// lighter colors where the reader prefers a dark one. As an image of its own a chart stays as it is.
std::string page_style();

}  // namespace lockstep::plot
