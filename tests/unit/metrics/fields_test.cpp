// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/fields.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>

#include "metrics/numbers/fourier.hpp"

namespace lockstep::metrics {
namespace fields_test {

using Complex = std::complex<double>;

std::vector<double> random_values(std::size_t count) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> values(count);
  for (double& value : values) value = uniform(random);
  return values;
}

/// The definition: one sum over all points for each element of a transform in two dimensions.
Complex element(const std::vector<double>& values, std::size_t rows, std::size_t columns, std::size_t k,
                std::size_t l) {
  Complex sum = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      const double turns = static_cast<double>(k * i) / static_cast<double>(rows) +
                           static_cast<double>(l * j) / static_cast<double>(columns);
      sum += values[i * columns + j] * std::polar(1.0, -2 * std::numbers::pi * turns);
    }
  }
  return sum;
}

// Prime sizes, powers, products of several primes, and single points.
TEST(FourierTest, IsTheSumOfItsDefinition) {
  const std::vector<std::vector<std::size_t>> shapes = {{1, 1},   {1, 8},  {7, 1},  {2, 3},   {4, 9},
                                                        {13, 12}, {30, 5}, {11, 7}, {16, 10}, {1, 64}};
  for (const auto& shape : shapes) {
    const std::vector<double> values = random_values(shape[0] * shape[1]);
    const std::vector<Complex> transform = fourier_transform(values, shape);
    ASSERT_EQ(transform.size(), values.size());
    for (std::size_t k = 0; k < shape[0]; ++k) {
      for (std::size_t l = 0; l < shape[1]; ++l) {
        EXPECT_LE(std::abs(transform[k * shape[1] + l] - element(values, shape[0], shape[1], k, l)), 1e-12)
            << shape[0] << " x " << shape[1];
      }
    }
  }
}

TEST(FourierTest, WaveNumbersAreSigned) {
  const auto numbers = [](std::size_t size) {
    std::vector<double> all;
    for (std::size_t i = 0; i < size; ++i) all.push_back(wave_number(i, size));
    return all;
  };
  EXPECT_EQ(numbers(1), (std::vector<double>{0}));
  EXPECT_EQ(numbers(4), (std::vector<double>{0, 1, -2, -1}));
  EXPECT_EQ(numbers(5), (std::vector<double>{0, 1, 2, -2, -1}));
}

// Errors 1, -2 and 3; the last of them twice as heavy.
TEST(FieldsTest, SumsAreWeighted) {
  const std::vector<double> prediction = {1, 0, 5, std::nan("")};
  const std::vector<double> target = {0, 2, 2, 7};
  const FieldSums sums =
      field_sums({.prediction = prediction, .target = target, .weights = std::vector<double>{1, 1, 2, 0}});
  EXPECT_EQ(sums.weight, 4);
  EXPECT_EQ(sums.squared, 1 + 4 + 2 * 9);
  EXPECT_EQ(sums.absolute, 1 + 2 + 2 * 3);
  EXPECT_EQ(sums.error, 1 - 2 + 2 * 3);
  EXPECT_EQ(sums.max, 3);
}

TEST(FieldsTest, AnErrorThatIsNoNumberIsTheLargest) {
  const std::vector<double> prediction = {1, std::nan(""), 5};
  const std::vector<double> target = {0, 0, 0};
  EXPECT_TRUE(std::isnan(field_sums({.prediction = prediction, .target = target}).max));
}

TEST(FieldsTest, AnomaliesOfOneKindAreCorrelated) {
  const std::vector<double> climatology = {10, 20, 30, 40};
  const std::vector<double> target = {11, 22, 29, 40};
  std::vector<double> doubled;
  std::vector<double> opposite;
  std::vector<double> shifted;
  for (std::size_t i = 0; i < target.size(); ++i) {
    doubled.push_back(climatology[i] + 2 * (target[i] - climatology[i]));
    opposite.push_back(climatology[i] - (target[i] - climatology[i]));
    shifted.push_back(target[i] + 5);
  }
  const auto correlation = [&](const std::vector<double>& prediction, bool is_centered) {
    return anomaly_correlation({.prediction = prediction, .target = target}, climatology, is_centered);
  };
  EXPECT_NEAR(correlation(doubled, false), 1, 1e-15);
  EXPECT_NEAR(correlation(opposite, false), -1, 1e-15);
  EXPECT_LT(correlation(shifted, false), 0.9);
  EXPECT_NEAR(correlation(shifted, true), 1, 1e-15);
  EXPECT_TRUE(std::isnan(correlation(climatology, false)));
}

// Parseval's theorem.
TEST(FieldsTest, BandsAddUpToTheMeanSquare) {
  for (const std::vector<std::size_t>& space : {std::vector<std::size_t>{15}, {6, 9}, {4, 6, 5}}) {
    std::size_t points = 1;
    for (const std::size_t size : space) points *= size;
    const std::vector<double> values = random_values(points);
    double mean = 0;
    for (const double value : values) mean += value * value / static_cast<double>(points);
    const Bands bands = SpectralBands(space).energies(values);
    EXPECT_NEAR(bands[0] + bands[1] + bands[2], mean, 1e-12);
  }
}

// Two waves of 1 and 9 periods, of 27 points: their energies are half of their squared amplitudes.
TEST(FieldsTest, AWaveHasOneBand) {
  std::vector<double> values;
  for (int i = 0; i < 27; ++i) {
    const double angle = 2 * std::numbers::pi * i / 27;
    values.push_back(2 * std::cos(angle) + 4 * std::sin(9 * angle));
  }
  const Bands bands = SpectralBands({27}).energies(values);
  EXPECT_NEAR(bands[0], 2, 1e-12);
  EXPECT_NEAR(bands[1], 0, 1e-12);
  EXPECT_NEAR(bands[2], 8, 1e-12);
}

// A constant error of 3 in space [8]: no wave, and the same at the boundary.
TEST(FieldsTest, PdeErrorsOfAConstantError) {
  const std::vector<double> target(8, 6.0);
  const std::vector<double> prediction(8, 9.0);
  const std::vector<std::size_t> space = {8};
  const PdeErrors errors = pde_errors({.prediction = prediction, .target = target}, space);
  EXPECT_EQ(errors.rmse, 3);
  EXPECT_EQ(errors.nrmse, 0.5);
  EXPECT_EQ(errors.mean, 3);
  EXPECT_EQ(errors.max, 3);
  EXPECT_EQ(errors.boundary, 3);
  ASSERT_EQ(errors.energies.size(), 5U);
  EXPECT_NEAR(errors.energies[0], 9, 1e-14);
  for (std::size_t bin = 1; bin < 5; ++bin) EXPECT_NEAR(errors.energies[bin], 0, 1e-14);
}

// The error is 1 in one corner of a box of 2 x 3 x 4 points, which 3 of the 2 (12 + 8 + 6) points of faces are.
TEST(FieldsTest, ACornerCountsOnceForEachAxis) {
  const std::vector<std::size_t> space = {2, 3, 4};
  const std::vector<double> target(24, 0.0);
  std::vector<double> prediction = target;
  prediction[0] = 1;
  EXPECT_EQ(pde_errors({.prediction = prediction, .target = target}, space).boundary, std::sqrt(3.0 / 52));
}

TEST(FieldsTest, BinsHaveBands) {
  EXPECT_EQ(pde_bins(std::vector<std::size_t>{9}), 5U);
  EXPECT_EQ(pde_bins(std::vector<std::size_t>{8, 6}), 3U);
  std::vector<double> bins;
  for (int i = 0; i < 14; ++i) bins.push_back(i);
  EXPECT_EQ(pde_bands(bins), (Bands{1.5, 7.5, 12.5}));
  bins.resize(6);
  EXPECT_EQ(pde_bands(bins)[1], 4.5);
  EXPECT_TRUE(std::isnan(pde_bands(bins)[2]));
}

}  // namespace fields_test
}  // namespace lockstep::metrics
