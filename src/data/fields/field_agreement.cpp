// SPDX-License-Identifier: BSD-3-Clause
#include "data/fields/field_agreement.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>

namespace lockstep::data {

namespace {

constexpr double kTolerance = 1e-5;  // coordinates are often float32

/// Are two lists the same but for rounding, relative to their largest magnitude?
template <class Values, class Others>
bool are_equal(const Values& values, const Others& others) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return std::ranges::equal(values, others,
                            [&](double a, double b) { return std::abs(a - b) <= kTolerance * largest; });
}

/// The coordinates of the points of samples on an axis; empty = unknown.
std::vector<double> coordinates_along(const arrays::ArrayFile& file, const FieldVariable& variable,
                                      const SpaceAxis& axis) {
  const std::vector<double> all = coordinate_of(file, variable.info.path, axis.name);
  std::vector<double> chosen;
  for (std::int64_t i = axis.part.begin; std::ssize(all) == axis.size && i < axis.part.end; i += axis.part.step) {
    chosen.push_back(all[static_cast<std::size_t>(i)]);
  }
  return chosen;
}

}  // namespace

std::vector<std::string> differences_in(const arrays::ArrayFile& file, const FieldFile& described,
                                        const FieldFile& first, const SampleSpace& space, const std::string& space_of) {
  std::vector<std::string> differences;
  for (const SpaceAxis& axis : space) {
    const std::vector<double> found = coordinates_along(file, described.variables.front(), axis);
    if (found.size() != axis.coordinates.size() || are_equal(found, axis.coordinates)) continue;
    const std::vector<double> turned(found.rbegin(), found.rend());
    if (are_equal(turned, axis.coordinates)) {
      throw DataError(described.path, "the coordinates of its axis " + axis.name + " run the other way than in " +
                                          space_of + "; turn the fields of one of the files around");
    }
    differences.push_back("the axis " + axis.name + " has other coordinates than in " + space_of);
  }
  for (std::size_t i = 0; i < std::min(described.variables.size(), first.variables.size()); ++i) {
    const std::string& unit = described.variables[i].units;
    const std::string& expected = first.variables[i].units;
    if (unit.empty() || expected.empty() || unit == expected) continue;
    differences.push_back("the array '" + described.variables[i].info.path + "' has the unit " + unit + ", but " +
                          expected + " in " + first.path);
  }
  return differences;
}

std::vector<std::string> differences_of_times(const FieldPair& pair) {
  const std::vector<double>& inputs = pair.inputs.times;
  const std::vector<double>& targets = pair.targets.times;
  if (inputs.empty() || inputs.size() != targets.size()) return {};
  const bool are_same = std::ranges::equal(inputs, targets, [](double a, double b) { return std::abs(a - b) < 1; });
  if (are_same) return {};
  return {"its times are not those of " + pair.inputs.path + "; steps with equal numbers belong together"};
}

std::string letters_by_names(const arrays::ArrayInfo& array, const SampleSpace& space) {
  if (array.axes.size() != array.shape.size() ||
      std::ranges::any_of(array.axes, [](const std::string& name) { return name.empty(); })) {
    return "";
  }
  std::string letters = found_letters(array, /*is_in_group=*/false).letters;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    const auto same = std::ranges::find(space, array.axes[i], &SpaceAxis::name);
    if (same != space.end()) letters[i] = same->letter;
  }
  const bool has_all =
      std::ranges::all_of(space, [&](const SpaceAxis& axis) { return std::ranges::count(letters, axis.letter) == 1; });
  return has_all ? letters : "";
}

}  // namespace lockstep::data
