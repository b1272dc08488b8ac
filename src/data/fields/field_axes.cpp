// SPDX-License-Identifier: BSD-3-Clause
#include "data/fields/field_axes.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>

#include "arrays/packing.hpp"
#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"

namespace lockstep::data {

namespace {

struct NameRow {
  char letter;
  std::string_view names;  ///< separated by blanks
};

/// Usual names of axes.
constexpr std::array<NameRow, 7> kNames = {{{'n', " sample trajectory member realization number "},
                                            {'t', " time valid_time timestamp t "},
                                            {'c', " channel variable channels "},
                                            {'y', " lat latitude y rlat "},
                                            {'x', " lon longitude x rlon "},
                                            {'z', " z "},
                                            {'l', " lev level plev pressure_level depth height "}}};

char letter_of(const std::string& name) {
  std::string low = name;
  std::ranges::transform(low, low.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  for (const NameRow& row : kNames) {
    if (row.names.find(" " + low + " ") != std::string_view::npos) return row.letter;
  }
  return 0;
}

/// The letters of named axes; an unknown name gets a letter that is still free.
std::string letters_of_names(const arrays::ArrayInfo& array) {
  std::string letters;
  for (const std::string& name : array.axes) letters += letter_of(name) == 0 ? '?' : letter_of(name);
  std::string free = "uvwpqrsdefghijkmo";
  for (char& letter : letters) {
    if (letter != '?' && std::ranges::count(letters, letter) == 1) continue;
    const auto unused = std::ranges::find_if(free, [&](char c) { return letters.find(c) == std::string::npos; });
    letter = *unused;
  }
  return letters;
}

bool is_named(const arrays::ArrayInfo& array) {
  return !array.axes.empty() && std::ranges::none_of(array.axes, [](const std::string& name) { return name.empty(); });
}

constexpr std::array<std::string_view, 3> kSpace = {"x", "xy", "xyz"};

/// The Well: t0_fields, t1_fields and t2_fields hold scalars, vectors and tensors, [sample, time, space ...]; the
/// attribute dim_varying has an entry for each axis of space.
std::string letters_of_the_well(const arrays::ArrayInfo& array) {
  const auto varying = arrays::numbers_of(array.attributes, "dim_varying");
  if (varying.empty() || varying.size() > kSpace.size()) return "";
  const std::string tail = array.path.starts_with("t1_fields/")   ? "c"
                           : array.path.starts_with("t2_fields/") ? "ab"
                                                                  : "";
  const std::string inner = std::string(kSpace[varying.size() - 1]) + tail;
  for (const char* outer : {"nt", "n", "t", ""}) {
    if ((outer + inner).size() == array.shape.size()) return outer + inner;
  }
  return "";
}

/// PDEBench and similar files without any names.
FoundLetters letters_of_shape(const arrays::ArrayInfo& array, bool is_in_group) {
  const std::size_t rank = array.shape.size();
  if (is_in_group && rank >= 3 && rank <= 5) {
    return {"t" + std::string(kSpace[rank - 3]) + "c", "groups of PDEBench, a trajectory each"};
  }
  if (is_in_group) return {};
  if (array.path == "tensor" && rank >= 3 && rank <= 5) {
    return {"nt" + std::string(kSpace[rank - 3]), "array 'tensor' of PDEBench"};
  }
  if (array.path == "fields" && rank == 4) return {"tcyx", "array 'fields' of Makani"};
  if (rank == 2) return {"nc", "two axes: rows and channels"};
  return {};
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::int64_t index_at(const std::vector<double>& coordinates, const AxisChoice& choice, const std::string& place) {
  const auto wanted = parse_real(choice.value);
  const auto found = std::ranges::find_if(coordinates, [&](double value) {
    return wanted && std::abs(value - *wanted) <= 1e-6 * std::max(std::abs(value), std::abs(*wanted));
  });
  if (found != coordinates.end()) return found - coordinates.begin();
  std::vector<std::string> known;
  for (const double value : coordinates) known.push_back(number_text(value, 7));
  if (known.size() > 12) known.resize(12), known.emplace_back("...");
  throw ConfigError(place + ": the axis has no coordinate " + choice.value + "; it has " + joined(known));
}

/// The position that a choice means on an axis.
std::int64_t fixed_index(const arrays::ArrayFile& file, const arrays::ArrayInfo& array, std::size_t axis,
                         const AxisChoice& choice) {
  const std::string place = file.path() + ": " + array.path + "[" + choice.axis + "]";
  if (!choice.is_index) {
    const std::string name = axis < array.axes.size() ? array.axes[axis] : "";
    const std::vector<double> coordinates = coordinate_of(file, array.path, name.empty() ? choice.axis : name);
    if (coordinates.empty()) {
      throw ConfigError(place + ": the file has no coordinates of this axis; choose by index, as in " + array.path +
                        "[" + choice.axis + "#0]");
    }
    return index_at(coordinates, choice, place);
  }
  const auto index = parse_integer(choice.value);
  if (!index || *index < 0 || *index >= array.shape[axis]) {
    throw ConfigError(place + ": '" + choice.value + "' is no index of an axis of " +
                      std::to_string(array.shape[axis]));
  }
  return *index;
}

/// The axis that a choice names, by its name in the file or its letter.
std::size_t axis_of(const arrays::ArrayFile& file, const arrays::ArrayInfo& array, const std::string& letters,
                    const AxisChoice& choice) {
  for (std::size_t i = 0; i < letters.size(); ++i) {
    if (i < array.axes.size() && array.axes[i] == choice.axis) return i;
    if (choice.axis == std::string(1, letters[i])) return i;
  }
  throw ConfigError(file.path() + ": the array '" + array.path + "' has no axis '" + choice.axis + "'; its axes are " +
                    (is_named(array) ? joined(array.axes) : "the letters of its layout, " + letters));
}

}  // namespace

std::string FieldAxes::space_letters() const {
  std::string text;
  for (const std::size_t axis : space) text += letters[axis];
  return text;
}

std::int64_t FieldAxes::channel_count(const std::vector<std::int64_t>& shape) const {
  return std::accumulate(channels.begin(), channels.end(), std::int64_t{1},
                         [&](std::int64_t product, std::size_t axis) { return product * shape[axis]; });
}

FoundLetters found_letters(const arrays::ArrayInfo& array, bool is_in_group) {
  if (is_named(array)) return {letters_of_names(array), "names of the axes"};
  const std::string well = letters_of_the_well(array);
  return well.empty() ? letters_of_shape(array, is_in_group) : FoundLetters{well, "attributes of The Well"};
}

FieldAxes axes_of(const arrays::ArrayFile& file, const arrays::ArrayInfo& array, const std::string& letters,
                  const VariableChoice& choice, const std::string& layout_cited) {
  for (const char letter : letters) {
    if (std::ranges::count(letters, letter) > 1) {
      throw ConfigError(layout_cited + ": the layout '" + letters + "' has the letter " + letter +
                        " twice; each letter stands for one axis");
    }
  }
  if (letters.size() != array.shape.size()) {
    throw DataError(file.path(), "the array '" + array.path + "' has " + std::to_string(array.shape.size()) +
                                     " axes, " + shape_text(array.shape) + ", but the layout '" + letters + "' has " +
                                     std::to_string(letters.size()) + "; correct data.layout");
  }
  FieldAxes axes{.letters = letters, .fixed = std::vector<std::int64_t>(letters.size(), -1)};
  for (const AxisChoice& each : choice.fixed) {
    const std::size_t axis = axis_of(file, array, letters, each);
    axes.fixed[axis] = fixed_index(file, array, axis, each);
  }
  for (std::size_t i = 0; i < letters.size(); ++i) {
    const char letter = letters[i];
    if (axes.fixed[i] >= 0) continue;
    if (letter == 'n') {
      axes.trajectory = i;
    } else if (letter == 't') {
      axes.time = i;
    } else if (letter == 'c' || letter == 'a' || letter == 'b') {
      axes.channels.push_back(i);
    } else {
      axes.space.push_back(i);
    }
  }
  if (axes.space.size() > 3) {
    throw DataError(file.path(), "the array '" + array.path + "' has " + std::to_string(axes.space.size()) +
                                     " axes of space, " + axes.space_letters() +
                                     ", but at most 3 are possible; choose a position of the others, as in " +
                                     array.path + "[" + axis_name(array, axes, axes.space.front()) + "#0]");
  }
  return axes;
}

std::optional<arrays::ArrayInfo> coordinate_array(const arrays::ArrayFile& file, const std::string& array,
                                                  const std::string& axis) {
  if (axis.empty()) return std::nullopt;
  const std::vector<std::string> names = file.names();
  std::string group = parent_of(array);
  while (true) {
    const std::string name = group.empty() ? axis : group + "/" + axis;
    if (std::ranges::find(names, name) != names.end()) {
      try {
        arrays::ArrayInfo info = file.find(name);
        if (info.shape.size() == 1) return info;
      } catch (const DataError&) {  // texts, such as the names of stations
      }
      return std::nullopt;
    }
    if (group.empty()) return std::nullopt;
    group = parent_of(group);
  }
}

std::string unit_of(const arrays::ArrayInfo& array) {
  const std::vector<std::string> units = arrays::texts_of(array.attributes, "units");
  return units.empty() ? "" : units.front();
}

std::vector<double> coordinates_in(const arrays::ArrayFile& file, const arrays::ArrayInfo& array) {
  std::vector<std::byte> stored(static_cast<std::size_t>(array.shape.front()) * array.type.bytes);
  file.read(array, arrays::whole(array), stored);
  std::vector<double> values(static_cast<std::size_t>(array.shape.front()));
  arrays::decode(arrays::packing_of(file.path(), array), stored, std::span(values));
  return values;
}

std::vector<double> coordinate_of(const arrays::ArrayFile& file, const std::string& array, const std::string& axis) {
  const std::optional<arrays::ArrayInfo> found = coordinate_array(file, array, axis);
  return found ? coordinates_in(file, *found) : std::vector<double>();
}

std::string axis_name(const arrays::ArrayInfo& array, const FieldAxes& axes, std::size_t axis) {
  if (axis < array.axes.size() && !array.axes[axis].empty()) return array.axes[axis];
  return std::string(1, axes.letters[axis]);
}

}  // namespace lockstep::data
