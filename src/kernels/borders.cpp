// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/borders.hpp"

#include <algorithm>

namespace lockstep::kernels {

namespace {

void write_borders(const BorderedField& field, std::size_t axis, const float* source, float* target) {
  if (axis == field.axes.size()) {
    std::copy_n(source, field.values, target);
    return;
  }
  const auto& [points, sources] = field.axes[axis];
  const std::int64_t size = field.size_from(axis + 1, 0);
  const std::int64_t bordered = field.size_from(axis + 1, 2);
  if (size == bordered) {
    std::copy_n(source, points * size, target + bordered);
  } else {
    for (std::int64_t p = 0; p < points; ++p) {
      write_borders(field, axis + 1, source + p * size, target + (p + 1) * bordered);
    }
  }
  float* const behind = target + (points + 1) * bordered;
  if (sources) {
    std::copy_n(target + (sources->before + 1) * bordered, bordered, target);
    std::copy_n(target + (sources->behind + 1) * bordered, bordered, behind);
  } else {
    std::fill_n(target, bordered, 0.0F);
    std::fill_n(behind, bordered, 0.0F);
  }
}

void add_values(const float* source, std::int64_t count, float* target) {
  for (std::int64_t i = 0; i < count; ++i) target[i] += source[i];
}

void fold_borders(const BorderedField& field, std::size_t axis, const float* source, float* target) {
  if (axis == field.axes.size()) {
    std::copy_n(source, field.values, target);
    return;
  }
  const auto& [points, sources] = field.axes[axis];
  const std::int64_t size = field.size_from(axis + 1, 0);
  const std::int64_t bordered = field.size_from(axis + 1, 2);
  if (size == bordered) {
    std::copy_n(source + bordered, points * size, target);
  } else {
    for (std::int64_t p = 0; p < points; ++p) {
      fold_borders(field, axis + 1, source + (p + 1) * bordered, target + p * size);
    }
  }
  if (!sources) return;
  std::vector<float> folded(static_cast<std::size_t>(size));
  const auto add = [&](std::int64_t border, std::int64_t point) {
    fold_borders(field, axis + 1, source + border * bordered, folded.data());
    add_values(folded.data(), size, target + point * size);
  };
  add(0, sources->before);
  add(points + 1, sources->behind);
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
