// SPDX-License-Identifier: BSD-3-Clause
#include "report/page/fields_section.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/text/text.hpp"
#include "plot/line_chart.hpp"
#include "plot/svg.hpp"
#include "report/page/curve_charts.hpp"
#include "report/page/html.hpp"

namespace lockstep::report {

namespace {

using plot::escaped;

constexpr std::int64_t kCoarsePicture = 400;  // pictures of fewer points are drawn in squares
constexpr std::int64_t kLongShape = 6;        // longer pictures lie below one another

/// The three values below a color bar: its ends and its middle.
std::string values_of(const ColorScale& scale) {
  std::string text;
  for (const double value : {scale.low, (scale.low + scale.high) / 2, scale.high}) {
    text += "<span>" + fmt::format("{:.4g}", value) + "</span>";
  }
  return text;
}

std::string figure_of(const Base64Image& picture) {
  const ColorScale& scale = *picture.scale;
  const std::string look = std::max(picture.height, picture.width) < kCoarsePicture ? " class=\"coarse\"" : "";
  const std::string caption = scale.unit.empty() ? picture.caption : picture.caption + " [" + scale.unit + "]";
  return fmt::format(
      "<figure><figcaption>{}</figcaption><img{} alt=\"{}\" width=\"{}\" height=\"{}\" "
      "src=\"data:image/png;base64,{}\"/><div class=\"bar\" style=\"background:linear-gradient(to right,{})\"></div>"
      "<div class=\"scale\">{}</div></figure>\n",
      escaped(caption), look, escaped(scale.group + ": " + picture.caption), picture.width, picture.height,
      escaped(picture.png), escaped(joined(scale.colors, ",")), values_of(scale));
}

/// @param table  with a title: columns after the first are lines over the first one
std::string chart_of(const Table& table) {
  const bool is_spectrum = table.name.find("/spectrum_") != std::string::npos;
  plot::LineChart chart{.title = table.title,
                        .x_label = table.names.empty() ? "" : table.names.front(),
                        .y_label = "",
                        .series = {},
                        .log_y = is_spectrum,
                        .log_x = is_spectrum,
                        .width = kChartWidth,
                        .height = 290};
  for (std::size_t column = 1; column < table.columns; ++column) {
    plot::Series line{.name = column < table.names.size() ? table.names[column] : "", .points = {}};
    for (std::size_t row = 0; row < table.rows(); ++row) {
      line.points.push_back({table.values[row * table.columns], table.values[row * table.columns + column]});
    }
    chart.series.push_back(std::move(line));
  }
  return plot::line_chart(chart);
}

}  // namespace

std::string fields_section(const Artifacts& artifacts) {
  std::string content;
  std::int64_t step = 0;
  std::string group;
  for (const Base64Image& picture : artifacts.pictures) {
    if (!picture.scale) continue;
    step = std::max(step, picture.step);
    if (content.empty()) content = "<p>Error = prediction - target. Gray points have no value.</p>\n";
    if (picture.scale->group != group) {
      content += group.empty() ? "" : "</div>\n";
      group = picture.scale->group;
      const bool is_long = picture.width > kLongShape * picture.height;
      content += "<p>" + escaped(group) + "</p>\n<div class=\"field" + (is_long ? " long" : "") + "\">\n";
    }
    content += figure_of(picture);
  }
  content += group.empty() ? "" : "</div>\n";
  std::vector<std::string> charts;
  for (const Table& table : artifacts.tables) {
    if (table.title.empty() || table.columns < 2) continue;
    step = std::max(step, table.step);
    charts.push_back(chart_of(table));
  }
  return html_section(fmt::format("Fields after step {}", step), content + html_charts(charts));
}

}  // namespace lockstep::report
