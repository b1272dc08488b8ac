// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/task.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Whether an axis of space has latitudes: it is called lat or latitude, or its coordinates have a unit of latitudes by
/// the CF conventions, such as degrees_north. Names count in any case.
/// @param unit  of the coordinates; "" = unknown
bool is_latitude_axis(const std::string& name, const std::string& unit);
/// The same for longitudes: lon, longitude, degrees_east.
bool is_longitude_axis(const std::string& name, const std::string& unit);

/// The first axis of fields for which `is_wanted` holds, one of the two functions above; none if there is no such axis.
std::optional<std::size_t> axis_of(const FieldTask& fields,
                                   bool (*is_wanted)(const std::string& name, const std::string& unit));

/// A rule by which the rows of a grid of latitudes weigh.
enum class AreaRule {
  caps,       ///< area between the midpoints of neighboring rows; the outermost rows reach to the poles
  half_rows,  ///< the same, but the outermost rows reach as far outwards as inwards, at most to the poles
  cosine      ///< cosine of the latitude: 0 at the poles
};

/// The weights of rows, with the mean 1.
/// @param latitudes  at least two in [-90, 90] degrees, strictly increasing or decreasing
/// @throws ConfigError  other latitudes
std::vector<double> latitude_weights(std::span<const double> latitudes, AreaRule rule);

/// The weights of the rows of fields.
struct RowWeights {
  std::size_t axis = 0;  ///< axis of space along which the rows lie
  std::vector<double> weights = {};
  AreaRule rule = AreaRule::caps;
};

/// A key that selects a rule: false, true, caps or cosine. @param name  "section.key", or the name of an option
KeySpec area_key(const std::string& name);

/// The weights that an area key selects; none for "false". "true" is half_rows for latitudes that span less than 150
/// degrees, and caps for all others.
/// @param cited_as  name of the key for messages
/// @throws ConfigError  no axis of the fields has latitudes and coordinates, or these are no latitudes
std::optional<RowWeights> row_weights(const std::string& area, const FieldTask& fields, const std::string& cited_as);

}  // namespace lockstep
