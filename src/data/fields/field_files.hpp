// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrays/array_file.hpp"
#include "arrays/packing.hpp"
#include "arrays/time_axis.hpp"
#include "data/fields/field_axes.hpp"
#include "data/fields/variable_choice.hpp"

namespace lockstep::data {

/// A variable of a file, of which samples contain some channels.
struct FieldVariable {
  arrays::ArrayInfo info;  ///< that of the first group, if each group has one
  arrays::Packing packing;
  FieldAxes axes;
  std::string layout_rule = "data.layout";  ///< how the letters of the axes were found
  std::vector<std::int64_t> channels;       ///< chosen positions on the channel axes, row by row; {0} without such axes
  std::vector<std::string> names;           ///< the chosen channels
  std::string units;                        ///< "" = unknown
  std::vector<std::string> groups = {};     ///< groups that have this array, a trajectory each; empty = one array
  std::vector<arrays::Packing> group_packings = {};  ///< those of the groups; empty = all are `packing`
  /// Whether an axis of length 1 stands for all positions, because the array does not vary along it (The Well).
  std::vector<bool> repeats;

  /// The array of a trajectory, and how it is packed.
  std::string path_of(std::int64_t trajectory) const;
  const arrays::Packing& packing_of(std::int64_t trajectory) const;
};

/// The variables of a file that samples read, with the size that all of them have.
struct FieldFile {
  std::string path;
  std::vector<FieldVariable> variables;
  std::int64_t trajectories = 1;
  std::int64_t steps = 1;
  bool has_time = false;           ///< a variable has a time axis
  std::vector<double> times = {};  ///< seconds of each step; empty = the file has no times with a unit
  arrays::Calendar calendar = arrays::Calendar::standard;  ///< that of the times
  bool has_implied_unit = false;                           ///< the times state no unit; see implied_time_unit

  std::int64_t channels() const;
};

/// An axis of space of the samples.
struct SpaceAxis {
  char letter = 'x';
  std::string name;                      ///< name in the file, else the letter
  std::int64_t size = 0;                 ///< number of stored points
  SpacePart part = {};                   ///< the points of the samples; `end` is not -1
  std::vector<double> coordinates = {};  ///< those of the points of samples; empty = unknown
  std::string unit = {};                 ///< that of the coordinates; "" = unknown

  std::int64_t count() const { return (part.end - part.begin + part.step - 1) / part.step; }
};
using SampleSpace = std::vector<SpaceAxis>;

std::int64_t points_of(const SampleSpace& space);

/// The array with the times of the steps of a variable that has a time axis.
std::optional<arrays::ArrayInfo> time_array(const arrays::ArrayFile& file, const FieldVariable& variable);

/// The unit of an array of times that states none: Makani's `timestamp` has seconds since 1970. "" = unknown.
std::string implied_time_unit(const arrays::ArrayInfo& times);

/// The keys that say how files are read.
struct FieldFileOptions {
  std::vector<VariableChoice> variables;
  LayoutChoice layout;
  std::string layout_cited = "data.layout";
  std::vector<std::string> channel_names = {};  ///< those of data.channels_from; empty = those of the file
};

/// Reads the description of a file.
/// @throws ConfigError, DataError  a variable is missing, has no numbers, or does not fit the layout or the others
FieldFile open_field_file(const arrays::ArrayFile& file, const FieldFileOptions& options);

/// The variables of a file, if data.variables does not name them.
/// @throws DataError  they are not obvious; the message lists the arrays
std::vector<VariableChoice> found_variables(const arrays::ArrayFile& file);

/// The space of a file's variables: that of the first one with all axes.
/// @throws ConfigError, DataError  the variables differ, or the parts do not fit
SampleSpace space_of(const arrays::ArrayFile& file, const FieldFile& described,
                     const std::map<std::string, SpacePart>& parts);

/// Compares another file of the same data set with the first one.
/// @throws DataError  it has other channels, another space or another packing
void require_same_fields(const FieldFile& first, const FieldFile& other, const SampleSpace& space);

/// Reads steps of a trajectory of a variable into out[step][channel][point]; gaps are NaN.
/// @tparam Value  float or double
/// @param pitch   distance between two steps in `out`
template <class Value>
void read_steps(const arrays::ArrayFile& file, const FieldVariable& variable, std::int64_t trajectory,
                std::int64_t first, std::int64_t steps, std::int64_t stride, const SampleSpace& space, Value* out,
                std::int64_t pitch);

}  // namespace lockstep::data
