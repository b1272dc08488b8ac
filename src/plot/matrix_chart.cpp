// SPDX-License-Identifier: BSD-3-Clause
#include "plot/matrix_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "plot/svg.hpp"

namespace lockstep::plot {

namespace {

constexpr double kMinOpacity = 0.12;  // lowest opacity of a cell whose count is not 0
constexpr double kDark = 0.6;         // texts are light from this opacity on
constexpr double kLabelRoom = 24;     // minimum space between the numbers of two neighboring classes

struct Grid {
  double left, top, cell;
  std::size_t classes;
};

std::string count_text(double count) { return fmt::format("{:.0f}", count); }

std::string class_text(const MatrixChart& chart, std::size_t c) {
  return chart.names.size() == chart.classes ? chart.names[c] : std::to_string(c);
}

/// @param place  in [0, classes): column and row
std::string draw_cell(const MatrixChart& chart, const Grid& grid, std::size_t row, std::size_t column, double sum) {
  const double count = chart.counts[row * chart.classes + column];
  if (!(count > 0)) return "";
  const double share = count / sum;
  const double depth = row == column ? share : std::sqrt(share);  // a few mistakes in a hundred are to be seen
  const double opacity = kMinOpacity + (1 - kMinOpacity) * depth;
  const double x = grid.left + grid.cell * static_cast<double>(column);
  const double y = grid.top + grid.cell * static_cast<double>(row);
  std::string svg = fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" fill-opacity=\"{}\">"
      "<title>{}</title></rect>\n",
      number(x), number(y), number(grid.cell), number(grid.cell), row == column ? kColors[0] : kColors[1],
      number(opacity),
      escaped(fmt::format("{} {}, {} {}: {} ({:.1f} %)", chart.row_label, class_text(chart, row), chart.column_label,
                          class_text(chart, column), count_text(count), 100 * share)));
  const std::string text = count_text(count);
  if (text_width(text) + 4 > grid.cell || grid.cell < 16) return svg;
  return svg + text_at(x + grid.cell / 2, y + grid.cell / 2 + 4,
                       std::string(" text-anchor=\"middle\" pointer-events=\"none\" fill=\"") +
                           (opacity < kDark ? "#111827" : "#ffffff") + "\"",
                       text);
}

/// The numbers of classes along both edges, as many as have room.
std::string draw_numbers(const Grid& grid) {
  const auto stride = static_cast<std::size_t>(std::max(1.0, std::ceil(kLabelRoom / grid.cell)));
  const double bottom = grid.top + grid.cell * static_cast<double>(grid.classes);
  std::string svg;
  for (std::size_t i = 0; i < grid.classes; i += stride) {
    const double middle = grid.cell * (static_cast<double>(i) + 0.5);
    svg += text_at(grid.left - 6, grid.top + middle + 4, " text-anchor=\"end\"", std::to_string(i));
    svg += text_at(grid.left + middle, bottom + 16, " text-anchor=\"middle\"", std::to_string(i));
  }
  return svg;
}

std::string draw_frame(const Grid& grid) {
  const double side = grid.cell * static_cast<double>(grid.classes);
  return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#6b7280\"/>\n",
                     number(grid.left), number(grid.top), number(side), number(side));
}

}  // namespace

std::string matrix_chart(const MatrixChart& chart) {
  if (chart.classes == 0 || chart.counts.size() != chart.classes * chart.classes) {
    throw std::invalid_argument("matrix_chart: it needs classes * classes counts, at least one");
  }
  const double left = 34 + text_width(std::to_string(chart.classes - 1));
  const double top = chart.title.empty() ? 16 : 44;
  const Grid grid{.left = left,
                  .top = top,
                  .cell = (chart.width - kMargin - left) / static_cast<double>(chart.classes),
                  .classes = chart.classes};
  const double side = chart.width - kMargin - left;
  std::string svg = svg_head(chart.width, static_cast<int>(top + side) + 44, chart.title, left);
  for (std::size_t row = 0; row < chart.classes; ++row) {
    double sum = 0;
    for (std::size_t column = 0; column < chart.classes; ++column) {
      sum += std::max(0.0, chart.counts[row * chart.classes + column]);
    }
    for (std::size_t column = 0; column < chart.classes; ++column) svg += draw_cell(chart, grid, row, column, sum);
  }
  svg += draw_frame(grid) + draw_numbers(grid);
  svg += text_at(left + side / 2, top + side + 36, " text-anchor=\"middle\"", chart.column_label);
  const double middle = top + side / 2;
  const std::string turned = fmt::format(" text-anchor=\"middle\" transform=\"rotate(-90 18 {})\"", number(middle));
  svg += text_at(18, middle, turned, chart.row_label);
  return svg + "</svg>\n";
}

}  // namespace lockstep::plot
