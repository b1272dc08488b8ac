// SPDX-License-Identifier: BSD-3-Clause
#include "engine/evaluation/map_view.hpp"

#include <torch/types.h>

#include <vector>

#include "core/numbers/latitudes.hpp"

namespace lockstep::engine {

namespace {

/// 1 if most steps between neighbors go up, -1 if most go down, 0 if there are no coordinates. Longitudes can pass 360
/// degrees once.
int direction_of(const std::vector<double>& coordinates) {
  std::int64_t ups = 0;
  for (std::size_t i = 1; i < coordinates.size(); ++i) ups += coordinates[i] > coordinates[i - 1] ? 1 : -1;
  return ups > 0 ? 1 : ups < 0 ? -1 : 0;
}

}  // namespace

MapView::MapView(const FieldTask& fields) : axes_(fields.axes.size()) {
  if (axes_ < 2) return;
  rows_ = axes_ - 2;
  columns_ = axes_ - 1;
  const auto direction = [&](std::size_t axis) {
    return axis < fields.coordinates.size() ? direction_of(fields.coordinates[axis]) : 0;
  };
  if (const auto longitude = axis_of(fields, is_longitude_axis)) {
    columns_ = *longitude;
    rows_ = axis_of(fields, is_latitude_axis).value_or(columns_ == axes_ - 1 ? axes_ - 2 : axes_ - 1);
    flips_columns_ = direction(columns_) < 0;
  }
  flips_rows_ = direction(rows_) > 0;
}

Tensor MapView::of(const Tensor& values) const {
  if (axes_ < 2 || !values.defined()) return values;
  at::Tensor shown = values;
  if (axes_ == 3) {
    const std::int64_t dim = values.dim() - 3 + static_cast<std::int64_t>(3 - rows_ - columns_);
    shown = shown.select(dim, shown.size(dim) / 2);
  }
  if (rows_ > columns_) shown = shown.transpose(-1, -2);
  if (flips_rows_) shown = shown.flip(-2);
  return flips_columns_ ? shown.flip(-1) : shown;
}

}  // namespace lockstep::engine
