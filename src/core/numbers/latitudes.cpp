// SPDX-License-Identifier: BSD-3-Clause
#include "core/numbers/latitudes.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>

namespace lockstep {

namespace {

constexpr double kPole = 90;
constexpr double kMinGlobalSpan = 150;  // degrees between the outermost rows of a grid that counts as global

double radians(double degrees) { return degrees * std::numbers::pi / 180; }

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  return text;
}

/// @param words  separated by blanks
bool is_among(const std::string& word, const std::string& words) {
  return !word.empty() && (" " + words + " ").find(" " + word + " ") != std::string::npos;
}

bool is_latitude(double degrees) { return std::abs(degrees) <= kPole; }

bool are_latitudes(std::span<const double> values) {
  if (values.size() < 2 || !std::ranges::all_of(values, is_latitude)) return false;
  return std::ranges::adjacent_find(values, std::greater_equal<>()) == values.end() ||
         std::ranges::adjacent_find(values, std::less_equal<>()) == values.end();
}

/// The edge beyond an outermost row. @param inner  the edge on its other side
double outer_edge(double latitude, double inner, AreaRule rule) {
  if (rule == AreaRule::caps) return latitude > inner ? kPole : -kPole;
  return std::clamp(2 * latitude - inner, -kPole, kPole);
}

std::vector<double> row_areas(std::span<const double> latitudes, AreaRule rule) {
  const std::size_t rows = latitudes.size();
  std::vector<double> edges(rows + 1);
  for (std::size_t i = 1; i < rows; ++i) edges[i] = (latitudes[i - 1] + latitudes[i]) / 2;
  edges.front() = outer_edge(latitudes.front(), edges[1], rule);
  edges.back() = outer_edge(latitudes.back(), edges[rows - 1], rule);
  std::vector<double> areas(rows);
  for (std::size_t i = 0; i < rows; ++i) {
    areas[i] = std::abs(std::sin(radians(edges[i + 1])) - std::sin(radians(edges[i])));
  }
  return areas;
}

}  // namespace

bool is_latitude_axis(const std::string& name, const std::string& unit) {
  return is_among(lower(name), "lat latitude") ||
         is_among(unit, "degrees_north degree_north degree_N degrees_N degreeN degreesN");
}

bool is_longitude_axis(const std::string& name, const std::string& unit) {
  return is_among(lower(name), "lon longitude") ||
         is_among(unit, "degrees_east degree_east degree_E degrees_E degreeE degreesE");
}

std::optional<std::size_t> axis_of(const FieldTask& fields,
                                   bool (*is_wanted)(const std::string& name, const std::string& unit)) {
  for (std::size_t i = 0; i < fields.axes.size(); ++i) {
    if (is_wanted(fields.axes[i], i < fields.axis_units.size() ? fields.axis_units[i] : "")) return i;
  }
  return std::nullopt;
}

std::vector<double> latitude_weights(std::span<const double> latitudes, AreaRule rule) {
  if (!are_latitudes(latitudes)) {
    throw ConfigError(
        "weights of rows need at least two latitudes in [-90, 90] degrees in ascending or descending "
        "order");
  }
  std::vector<double> weights(latitudes.size());
  if (rule == AreaRule::cosine) {
    std::ranges::transform(latitudes, weights.begin(), [](double latitude) { return std::cos(radians(latitude)); });
  } else {
    weights = row_areas(latitudes, rule);
  }
  const double mean = std::accumulate(weights.begin(), weights.end(), 0.0) / static_cast<double>(weights.size());
  for (double& weight : weights) weight /= mean;
  return weights;
}

KeySpec area_key(const std::string& name) {
  return keys::choice(name, "false",
                      "Weight of each row of latitudes: its area up to the poles (caps), or up to half a row beyond "
                      "the outermost rows of a region (true), or the cosine of the latitude",
                      {"false", "true", "caps", "cosine"});
}

std::optional<RowWeights> row_weights(const std::string& area, const FieldTask& fields, const std::string& cited_as) {
  if (area == "false") return std::nullopt;
  RowWeights rows{.axis = axis_of(fields, is_latitude_axis).value_or(fields.axes.size())};
  if (rows.axis >= fields.coordinates.size() || fields.coordinates[rows.axis].empty()) {
    throw ConfigError(cited_as +
                      ": no axis of the fields has latitudes as coordinates (it is called lat or latitude, or has the "
                      "unit degrees_north); use false");
  }
  const std::vector<double>& latitudes = fields.coordinates[rows.axis];
  const bool is_region = std::abs(latitudes.back() - latitudes.front()) < kMinGlobalSpan;
  if (area == "cosine") rows.rule = AreaRule::cosine;
  if (area == "true" && is_region) rows.rule = AreaRule::half_rows;
  try {
    rows.weights = latitude_weights(latitudes, rows.rule);
  } catch (const ConfigError& error) {
    throw ConfigError(cited_as + ": " + error.what());
  }
  return rows;
}

}  // namespace lockstep
