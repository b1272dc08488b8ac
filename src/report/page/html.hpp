// SPDX-License-Identifier: BSD-3-Clause
// What pages are put together from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plot/line_chart.hpp"

namespace lockstep::report {

/// A page with this title, also as its heading.
std::string html_page(const std::string& title, const std::string& body);

std::string html_section(const std::string& heading, const std::string& content);

/// Charts next to each other, as many per row as fit in the window.
/// @param beside  a table next to them
std::string html_charts(const std::vector<std::string>& svgs, const std::string& beside = "");

std::string html_lines(const std::vector<plot::LineChart>& charts);

/// A chart that is too fine to be made smaller: in a narrow window the reader moves it.
std::string html_wide_chart(const std::string& svg);

struct Figure {
  std::string alt;
  std::string caption;
  bool is_marked = false;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::string png;  ///< PNG file in base64
};
std::string html_figure(const Figure& figure);

/// @param head  names of the columns; empty = none are shown
/// @param rows  of plain text, escaped here
std::string html_table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows);

/// The details that are shown once the reader opens it.
std::string html_details(const std::string& summary, const std::string& content);

}  // namespace lockstep::report
