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
/// @throws ConfigError  no axis of the fields is called lat or latitude and has coordinates, or these are no latitudes
std::optional<RowWeights> row_weights(const std::string& area, const FieldTask& fields, const std::string& cited_as);

}  // namespace lockstep
