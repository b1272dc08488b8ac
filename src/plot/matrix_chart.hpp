// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::plot {

/// Counts by class and class: rows from the top, columns from the left, both numbered from 0. A cell is the darker the
/// larger its share of its row; those off the diagonal have another color, and are darker for the same share. It shows
/// its count if there is space, and always in a tooltip.
struct MatrixChart {
  std::string title;
  std::string row_label;     ///< row label: what a row is: "class"
  std::string column_label;  ///< column label: what a column is: "taken for"
  std::size_t classes = 0;
  std::vector<double> counts;           ///< [classes, classes]; what is not above 0 is not drawn
  std::vector<std::string> names = {};  ///< names of the classes, in the tooltips of the cells; empty = their numbers
  int width = 720;                      ///< width in pixels; the height follows
};

/// Draws an SVG image. The same chart gives the same bytes.
/// @throws std::invalid_argument  not classes * classes counts, or none
std::string matrix_chart(const MatrixChart& chart);

}  // namespace lockstep::plot
