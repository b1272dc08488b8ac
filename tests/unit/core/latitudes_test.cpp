// SPDX-License-Identifier: BSD-3-Clause
#include "core/numbers/latitudes.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "support/sentence.hpp"

namespace lockstep {
namespace latitudes_test {

using testing::sentence_of;

FieldTask grid(const std::vector<double>& latitudes) {
  return {.axes = {"lat", "lon"}, .coordinates = {latitudes, {0, 1, 2}}};
}

RowWeights weights_of(const std::string& area, const std::vector<double>& latitudes) {
  return row_weights(area, grid(latitudes), "loss.area").value();
}

// The sine of 30 degrees is 1/2: edges at the poles and at 30 and -30 degrees.
TEST(LatitudesTest, RowsWeighAsTheirAreas) {
  const std::vector<double> weights = latitude_weights(std::vector<double>{60, 0, -60}, AreaRule::caps);
  EXPECT_NEAR(weights[0], 0.75, 1e-15);
  EXPECT_NEAR(weights[1], 1.5, 1e-15);
  EXPECT_NEAR(weights[2], 0.75, 1e-15);
}

// Edges 60, 30, 0 degrees of the rows 45 and 15.
TEST(LatitudesTest, OutermostRowsOfARegionReachHalfARowOutwards) {
  const double root = std::numbers::sqrt3 / 2;
  const std::vector<double> weights = latitude_weights(std::vector<double>{15, 45}, AreaRule::half_rows);
  EXPECT_NEAR(weights[0], 2 * 0.5 / root, 1e-15);
  EXPECT_NEAR(weights[1], 2 * (root - 0.5) / root, 1e-15);
  // No further than the pole: edges 85 and 90 degrees, not 95.
  const std::vector<double> polar = latitude_weights(std::vector<double>{80, 90}, AreaRule::half_rows);
  const auto sine = [](double degrees) { return std::sin(degrees * std::numbers::pi / 180); };
  EXPECT_NEAR(polar[1] / polar[0], (1 - sine(85)) / (sine(85) - sine(75)), 1e-12);
}

TEST(LatitudesTest, TheCosineIsAnotherRule) {
  const std::vector<double> weights = latitude_weights(std::vector<double>{0, 60}, AreaRule::cosine);
  EXPECT_NEAR(weights[0], 2 / 1.5, 1e-15);
  EXPECT_NEAR(weights[1], 1 / 1.5, 1e-15);
}

TEST(LatitudesTest, ARegionIsNarrowerThan150Degrees) {
  EXPECT_EQ(weights_of("true", {74, 0, -75}).rule, AreaRule::half_rows);
  EXPECT_EQ(weights_of("true", {-75, 0, 75}).rule, AreaRule::caps);
  EXPECT_EQ(weights_of("caps", {10, 20}).rule, AreaRule::caps);
  EXPECT_EQ(weights_of("cosine", {10, 20}).rule, AreaRule::cosine);
  EXPECT_FALSE(row_weights("false", {}, "loss.area"));
}

TEST(LatitudesTest, TheAxisIsFoundByItsName) {
  const FieldTask task = {.axes = {"level", "latitude", "lon"}, .coordinates = {{1}, {10, 20}, {0}}};
  EXPECT_EQ(row_weights("true", task, "loss.area").value().axis, 1U);
}

// The units of latitudes and longitudes of the CF conventions, sections 4.1 and 4.2.
TEST(LatitudesTest, TheAxisIsFoundByItsUnit) {
  FieldTask task = {.axes = {"x", "y"}, .coordinates = {{0, 1}, {10, 20}}, .axis_units = {"degrees_east", ""}};
  for (const char* unit : {"degrees_north", "degree_north", "degree_N", "degrees_N", "degreeN", "degreesN"}) {
    task.axis_units[1] = unit;
    EXPECT_EQ(row_weights("true", task, "loss.area").value().axis, 1U) << unit;
    EXPECT_FALSE(is_longitude_axis("y", unit)) << unit;
  }
  for (const char* unit : {"degrees_east", "degree_east", "degree_E", "degrees_E", "degreeE", "degreesE"}) {
    EXPECT_TRUE(is_longitude_axis("x", unit)) << unit;
    EXPECT_FALSE(is_latitude_axis("x", unit)) << unit;
  }
  EXPECT_TRUE(is_latitude_axis("Latitude", ""));
  EXPECT_TRUE(is_longitude_axis("LON", "degrees"));
  for (const char* unit : {"", "degrees", "north", "degrees_north degrees_east"}) {
    EXPECT_FALSE(is_latitude_axis("y", unit)) << unit;
    EXPECT_FALSE(is_longitude_axis("x", unit)) << unit;
  }
  EXPECT_EQ(axis_of(task, is_longitude_axis), 0U);
  EXPECT_FALSE(axis_of({.axes = {"x", "y"}}, is_latitude_axis));
}

TEST(LatitudesTest, OtherCoordinatesAreRefused) {
  const auto refusal = [](const FieldTask& task) {
    return sentence_of<ConfigError>([&] { row_weights("true", task, "loss.area (here)"); });
  };
  const std::string no_axis =
      "loss.area (here): no axis of the fields has latitudes as coordinates (it is called lat or latitude, or has the "
      "unit degrees_north); use false";
  EXPECT_EQ(refusal({}), no_axis);
  EXPECT_EQ(refusal({.axes = {"y", "x"}, .coordinates = {{10, 20}, {1, 2}}}), no_axis);
  EXPECT_EQ(refusal({.axes = {"lat"}, .coordinates = {{}}}), no_axis);
  const std::string no_latitudes =
      "loss.area (here): weights of rows need at least two latitudes in [-90, 90] degrees in ascending or descending "
      "order";
  for (const std::vector<double>& wrong :
       {std::vector<double>{10}, {10, 10}, {10, 20, 15}, {80, 91}, {10, std::nan("")}}) {
    EXPECT_EQ(refusal(grid(wrong)), no_latitudes);
  }
}

}  // namespace latitudes_test
}  // namespace lockstep
