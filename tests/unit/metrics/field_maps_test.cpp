// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/field_maps.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <numbers>
#include <numeric>

namespace lockstep::metrics {
namespace field_maps_test {

const double kGap = std::nan("");

TEST(GridTest, CellsAreMeansOfPointsThatExist) {
  const Grid grid{.rows = 2, .columns = 3, .values = {1, 2, 7, 3, kGap, kGap}};
  const Grid cells = reduced(grid, 2);
  EXPECT_EQ(cells.rows, 1U);
  EXPECT_EQ(cells.columns, 2U);
  EXPECT_EQ(cells.values, (std::vector<double>{2, 7}));
  EXPECT_TRUE(std::isnan(reduced({.columns = 2, .values = {kGap, kGap}}, 2).values[0]));
  EXPECT_EQ(reduced(grid, 1).values[3], 3);
}

TEST(GridTest, CellsAreAsSmallAsTheLimitsAllow) {
  const Grid grid{.rows = 721, .columns = 1440, .values = {}};
  EXPECT_EQ(cell_size(grid, 1440, 721 * 1440), 1U);
  EXPECT_EQ(cell_size(grid, 360, 1 << 20), 4U);
  EXPECT_EQ(cell_size(grid, 1440, 1 << 14), 8U) << "91 x 180 = 16380 cells";
}

// Whole numbers, so that the plain loop rounds nothing.
TEST(ErrorMapTest, SumsAreThoseOfAPlainLoop) {
  constexpr std::size_t kSamples = 6;
  const std::vector<std::size_t> cell_of = {0, 0, 1, 0, 0, 1, 2, 2, 3};
  std::vector<double> counts(4);
  std::vector<double> sums(4);
  std::vector<double> squares(4);
  ErrorMap whole(2);
  ErrorMap one(2);
  ErrorMap other(2);
  for (std::size_t sample = 0; sample < kSamples; ++sample) {
    Grid errors{.rows = 3, .columns = 3, .values = std::vector<double>(9)};
    for (std::size_t i = 0; i < errors.values.size(); ++i) {
      errors.values[i] = i == sample ? kGap : static_cast<double>((7 * i + 5 * sample) % 11) - 4;
      if (i == sample) continue;
      counts[cell_of[i]] += 1;
      sums[cell_of[i]] += errors.values[i];
      squares[cell_of[i]] += errors.values[i] * errors.values[i];
    }
    whole.add(errors);
    (sample < 2 ? one : other).add(errors);
  }
  const std::vector<double> bias = whole.bias();
  const std::vector<double> rmse = whole.rmse();
  ASSERT_EQ(bias.size(), 4U);
  for (std::size_t i = 0; i < bias.size(); ++i) {
    EXPECT_EQ(bias[i], sums[i] / counts[i]);
    EXPECT_EQ(rmse[i], std::sqrt(squares[i] / counts[i]));
  }
  // The words of parts add up to those of the whole.
  std::vector<std::int64_t> words = one.words(4);
  const std::vector<std::int64_t> more = other.words(4);
  std::ranges::transform(words, more, words.begin(), std::plus<>());
  ErrorMap joined;
  joined.set_words(words);
  EXPECT_EQ(joined.bias(), bias);
  EXPECT_EQ(joined.rmse(), rmse);
  joined.set_words(ErrorMap().words(1));
  EXPECT_TRUE(std::isnan(joined.bias()[0]));
}

// cos(2 pi k x) has two coefficients of 1/2, the squares of which add up to 1/2.
TEST(RadialPowerTest, AWaveHasItsPowerAtItsNumber) {
  const auto wave = [](double waves, std::int64_t size) {
    return (at::arange(size, at::kDouble) * (2 * std::numbers::pi * waves / static_cast<double>(size))).cos();
  };
  const std::vector<double> line = radial_power(3 + wave(5, 24));
  ASSERT_EQ(line.size(), 13U);
  for (std::size_t k = 0; k < line.size(); ++k) EXPECT_NEAR(line[k], k == 0 ? 9 : k == 5 ? 0.5 : 0, 1e-12) << k;
  // 4 waves along 16 columns and 3 along 16 rows: a wave vector of length 5.
  const std::vector<double> plane = radial_power(wave(3, 16).unsqueeze(1) * wave(4, 16).unsqueeze(0));
  for (std::size_t k = 0; k < plane.size(); ++k) EXPECT_NEAR(plane[k], k == 5 ? 0.25 : 0, 1e-12) << k;
  // Half as many points on half of the length: the distance between two waves counts.
  const std::vector<double> part = radial_power(wave(2, 8).unsqueeze(1) + at::zeros({8, 16}, at::kDouble));
  for (std::size_t k = 0; k < part.size(); ++k) EXPECT_NEAR(part[k], k == 4 ? 0.5 : 0, 1e-12) << k;
}

TEST(RadialPowerTest, TheSumOfALineIsItsMeanSquare) {
  const at::Tensor line = at::arange(9, at::kDouble).square() - 20;
  const std::vector<double> power = radial_power(line);
  EXPECT_NEAR(std::accumulate(power.begin(), power.end(), 0.0), line.square().mean().item<double>(), 1e-9);
}

}  // namespace field_maps_test
}  // namespace lockstep::metrics
