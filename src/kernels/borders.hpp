// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::kernels {

/// The points of an axis that its two borders repeat.
struct BorderSources {
  std::int64_t before;
  std::int64_t behind;
};

/// An axis of a field. With borders, it has one more point at each end.
struct BorderedAxis {
  std::int64_t points;
  std::optional<BorderSources> sources;  ///< none = the borders are zero
};

/// Contiguous fields [axis 0, axis 1, ..., values].
struct BorderedField {
  std::vector<BorderedAxis> axes;
  std::int64_t values = 1;  ///< adjacent values of a point, such as channels

  std::int64_t size() const { return size_from(0, 0); }           ///< values of a field
  std::int64_t bordered_size() const { return size_from(0, 2); }  ///< values of a field with borders
  /// Values of a slice with axis `axis` and later ones.
  /// @param added  points that each axis has in addition
  std::int64_t size_from(std::size_t axis, std::int64_t added) const;
};

/// Writes fields with borders. A corner repeats the corner that the borders of both axes repeat.
/// @param fields  number of fields, one behind the other
/// @param source  [fields, field.size()]
/// @param target  [fields, field.bordered_size()]
void write_with_borders(const BorderedField& field, std::int64_t fields, const float* source, float* target);

/// The gradient of write_with_borders: adds the gradient of each border to the points that it repeats.
/// @param source  [fields, field.bordered_size()]
/// @param target  [fields, field.size()]
void write_without_borders(const BorderedField& field, std::int64_t fields, const float* source, float* target);

}  // namespace lockstep::kernels
