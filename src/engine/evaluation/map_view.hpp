// SPDX-License-Identifier: BSD-3-Clause
// The place of the axes of fields in pictures.
#pragma once

#include <lockstep/core/task.hpp>
#include <lockstep/core/tensor.hpp>

#include <cstddef>

namespace lockstep::engine {

/// Turns fields into rows and columns of a picture, from the top left. Longitudes grow to the right, and latitudes
/// upwards if there are longitudes, in whatever order the axes are stored. Otherwise the last two axes are rows and
/// columns. Rows whose coordinates grow are drawn upwards. Of three axes, the middle slice of the remaining one is
/// taken.
class MapView {
 public:
  MapView() = default;  ///< changes nothing
  explicit MapView(const FieldTask& fields);

  /// @param values  [..., space...] with the axes of space of the task; undefined stays so
  /// @return        [..., rows, columns]; fields with one axis are not changed
  Tensor of(const Tensor& values) const;

  /// The axes of space of rows and columns, of fields with at least two axes.
  std::size_t row_axis() const noexcept { return rows_; }
  std::size_t column_axis() const noexcept { return columns_; }

 private:
  std::size_t axes_ = 0;  // number of axes of space; fewer than 2 = nothing is changed
  std::size_t rows_ = 0;
  std::size_t columns_ = 1;
  bool flips_rows_ = false;
  bool flips_columns_ = false;
};

}  // namespace lockstep::engine
