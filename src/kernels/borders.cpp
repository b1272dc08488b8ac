// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/borders.hpp"

#include <algorithm>

namespace lockstep::kernels {

namespace {

/// An axis with the slices behind its points.
struct Slices {
  Slices(const BorderedField& field, std::size_t axis)
      : points(field.axes[axis].points),
        sources(field.axes[axis].sources),
        size(field.size_from(axis + 1, 0)),
        bordered(field.size_from(axis + 1, 2)),
        is_last(axis + 1 == field.axes.size()) {}

  std::int64_t points;
  std::optional<BorderSources> sources;
  std::int64_t size;      ///< values of a slice
  std::int64_t bordered;  ///< the same with borders
  bool is_last;           ///< no further axis: a slice has no borders
};

void write_borders(const BorderedField& field, std::size_t axis, const float* source, float* target) {
  const Slices slices(field, axis);
  const std::int64_t bordered = slices.bordered;
  if (slices.is_last) std::copy_n(source, slices.points * slices.size, target + bordered);
  for (std::int64_t p = 0; !slices.is_last && p < slices.points; ++p) {
    write_borders(field, axis + 1, source + p * slices.size, target + (p + 1) * bordered);
  }
  float* const behind = target + (slices.points + 1) * bordered;
  if (slices.sources) {
    std::copy_n(target + (slices.sources->before + 1) * bordered, bordered, target);
    std::copy_n(target + (slices.sources->behind + 1) * bordered, bordered, behind);
  } else {
    std::fill_n(target, bordered, 0.0F);
    std::fill_n(behind, bordered, 0.0F);
  }
}

void fold_borders(const BorderedField& field, std::size_t axis, const float* source, float* target) {
  const Slices slices(field, axis);
  const auto fold = [&](std::int64_t point, float* place) {
    const float* const slice = source + point * slices.bordered;
    slices.is_last ? void(std::copy_n(slice, slices.size, place)) : fold_borders(field, axis + 1, slice, place);
  };
  if (slices.is_last) std::copy_n(source + slices.bordered, slices.points * slices.size, target);
  for (std::int64_t p = 0; !slices.is_last && p < slices.points; ++p) fold(p + 1, target + p * slices.size);
  if (!slices.sources) return;
  std::vector<float> folded(static_cast<std::size_t>(slices.size));
  const auto add = [&](std::int64_t border, std::int64_t point) {
    fold(border, folded.data());
    for (std::size_t i = 0; i < folded.size(); ++i)
      target[point * slices.size + static_cast<std::int64_t>(i)] += folded[i];
  };
  add(0, slices.sources->before);
  add(slices.points + 1, slices.sources->behind);
}

}  // namespace

std::int64_t BorderedField::size_from(std::size_t axis, std::int64_t added) const {
  std::int64_t size = values;
  for (std::size_t i = axis; i < axes.size(); ++i) size *= axes[i].points + added;
  return size;
}

void write_with_borders(const BorderedField& field, std::int64_t fields, const float* source, float* target) {
  for (std::int64_t f = 0; f < fields; ++f) {
    write_borders(field, 0, source + f * field.size(), target + f * field.bordered_size());
  }
}

void write_without_borders(const BorderedField& field, std::int64_t fields, const float* source, float* target) {
  for (std::int64_t f = 0; f < fields; ++f) {
    fold_borders(field, 0, source + f * field.bordered_size(), target + f * field.size());
  }
}

}  // namespace lockstep::kernels
