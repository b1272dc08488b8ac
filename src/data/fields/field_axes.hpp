// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arrays/array_file.hpp"
#include "data/fields/variable_choice.hpp"

namespace lockstep::data {

/// The meaning of the axes of a stored array. Numbers are those of stored axes.
struct FieldAxes {
  std::string letters;                         ///< one for each stored axis
  std::optional<std::size_t> trajectory = {};  ///< n
  std::optional<std::size_t> time = {};        ///< t
  std::vector<std::size_t> channels = {};      ///< c, or the row and column of a tensor, a and b
  std::vector<std::size_t> space = {};         ///< the others, in the order of the file
  std::vector<std::int64_t> fixed = {};        ///< the chosen position of each axis; -1 = not fixed

  /// The letters of the axes of space.
  std::string space_letters() const;
  /// The number of channels before any are chosen.
  std::int64_t channel_count(const std::vector<std::int64_t>& shape) const;
};

/// The letters of an array and how they were found.
struct FoundLetters {
  std::string letters;  ///< a letter for each axis; "" = not found
  std::string rule;     ///< noun phrase: "names of the axes"
};

/// The letters of an array by the names of its axes (netCDF, dimension scales), or by the conventions of The Well and
/// PDEBench.
/// @param is_in_group  the array is one of many groups that are a trajectory each
FoundLetters found_letters(const arrays::ArrayInfo& array, bool is_in_group);

/// Reads the letters of an array and looks up the chosen positions of fixed axes.
/// @throws ConfigError  a letter occurs twice, or an axis or coordinate does not exist
/// @throws DataError    the array has another number of axes
FieldAxes axes_of(const arrays::ArrayFile& file, const arrays::ArrayInfo& array, const std::string& letters,
                  const VariableChoice& choice, const std::string& layout_cited);

/// The coordinate of an axis: an array of one axis named `axis`, in the group of `array` or above.
std::optional<arrays::ArrayInfo> coordinate_array(const arrays::ArrayFile& file, const std::string& array,
                                                  const std::string& axis);
/// The attribute `units` of an array; "" = it has none.
std::string unit_of(const arrays::ArrayInfo& array);
/// The numbers of an array of one axis, decoded.
std::vector<double> coordinates_in(const arrays::ArrayFile& file, const arrays::ArrayInfo& array);
/// Those of coordinate_array; empty if there is none.
std::vector<double> coordinate_of(const arrays::ArrayFile& file, const std::string& array, const std::string& axis);

/// The name of a stored axis in messages and choices: its name in the file, else its letter.
std::string axis_name(const arrays::ArrayInfo& array, const FieldAxes& axes, std::size_t axis);

}  // namespace lockstep::data
