// SPDX-License-Identifier: BSD-3-Clause
#include "optim/update/stochastic_rounding.hpp"

#include <lockstep/core/tensor.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/optimizers.hpp"

namespace lockstep::optim {
namespace stochastic_rounding_test {

constexpr float kUnit = 0x1p-7F;  // the distance of numbers of bfloat16 in [1, 2)

std::vector<float> rounded(const std::vector<float>& from, kernels::RoundingKey key, std::int64_t begin = 0) {
  std::vector<std::uint16_t> halves(from.size());
  kernels::round_stochastically(from.data(), reinterpret_cast<std::byte*>(halves.data()),
                                static_cast<std::int64_t>(from.size()), begin, key);
  std::vector<float> values;
  for (const std::uint16_t half : halves) values.push_back(bfloat16_to_float(half));
  return values;
}

std::vector<float> wave(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = std::sin(0.37F * static_cast<float>(i)) * std::exp2(0.01F * static_cast<float>(i));
  return values;
}

TEST(StochasticRoundingTest, KeepsWhatBfloat16Represents) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {0, -0.0F, 1, -1.5F, 0x1p-126F, -0x1.FEp127F, infinity, -infinity};
  for (std::uint32_t k = 0; k < 1000; ++k) {
    const std::vector<float> same = rounded(values, {.first = k, .second = 7 * k});
    EXPECT_EQ(same, values);
    EXPECT_TRUE(std::signbit(same[1]));
    EXPECT_TRUE(std::isnan(rounded({std::numeric_limits<float>::signaling_NaN()}, {.first = k})[0]));
  }
}

// Each number becomes one of its neighbors. With n samples, the share of the upper one has the standard deviation
// sqrt(p (1 - p) / n): 0.0016 at most.
TEST(StochasticRoundingTest, HasTheExpectedValueOfTheNumber) {
  constexpr std::size_t kSamples = 100000;
  for (int part = 0; part <= 8; ++part) {
    const double share = part / 8.0;
    for (const float sign : {1.0F, -1.0F}) {
      const float value = sign * (1 + static_cast<float>(share) * kUnit);
      std::size_t upper = 0;
      for (const float one : rounded(std::vector<float>(kSamples, value), rounding_key(1, "w", 1))) {
        upper += one == sign * (1 + kUnit) ? 1 : 0;
        EXPECT_TRUE(one == sign || one == sign * (1 + kUnit)) << one;
      }
      const double deviation = std::sqrt(share * (1 - share) / kSamples);
      EXPECT_NEAR(static_cast<double>(upper) / kSamples, share, 5 * deviation) << part;
    }
  }
}

// Pairs of neighbors and of consecutive updates: the correlation of n pairs has the standard deviation 1 / sqrt(n).
TEST(StochasticRoundingTest, DrawsAreIndependent) {
  constexpr std::size_t kSamples = 100000;
  const auto signs = [](std::int64_t step) {
    std::vector<float> drawn = rounded(std::vector<float>(kSamples, 1 + kUnit / 2), rounding_key(3, "w", step));
    for (float& value : drawn) value = value == 1 ? -1.0F : 1.0F;
    return drawn;
  };
  const auto correlation = [](const std::vector<float>& a, const std::vector<float>& b, std::size_t shift) {
    double sum = 0;
    for (std::size_t i = 0; i + shift < a.size(); ++i) sum += static_cast<double>(a[i] * b[i + shift]);
    return sum / static_cast<double>(a.size() - shift);
  };
  const double bound = 5 / std::sqrt(kSamples);
  const std::vector<float> first = signs(1);
  for (std::size_t shift = 1; shift <= 64; ++shift) EXPECT_LE(std::abs(correlation(first, first, shift)), bound);
  for (std::int64_t step = 2; step <= 32; ++step) EXPECT_LE(std::abs(correlation(first, signs(step), 0)), bound);
}

TEST(StochasticRoundingTest, DependsOnPositionAndKeyAlone) {
  const std::vector<float> values = wave(5000);
  const kernels::RoundingKey key = rounding_key(1, "w", 1);
  const std::vector<float> whole = rounded(values, key);
  for (const std::size_t cut : {1U, 17U, 4096U}) {
    std::vector<float> parts = rounded({values.begin(), values.begin() + static_cast<std::ptrdiff_t>(cut)}, key);
    const std::vector<float> rest =
        rounded({values.begin() + static_cast<std::ptrdiff_t>(cut), values.end()}, key, static_cast<std::int64_t>(cut));
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(parts, whole);
  }
  EXPECT_NE(rounded(values, rounding_key(2, "w", 1)), whole);
  EXPECT_NE(rounded(values, rounding_key(1, "v", 1)), whole);
  EXPECT_NE(rounded(values, rounding_key(1, "w", 2)), whole);
  EXPECT_NE(rounded(values, key, 1), whole);
}

TEST(StochasticRoundingTest, TensorsHaveTheSameBits) {
  std::vector<float> values = wave(5000);
  values[7] = std::numeric_limits<float>::infinity();
  values[8] = -0x1.FFFFFEp127F;
  const at::Tensor tensor = at::from_blob(values.data(), {5000}, at::kFloat);
  for (const std::int64_t begin : {std::int64_t{0}, std::int64_t{123456}, (std::int64_t{1} << 32) - 100}) {
    for (std::int64_t step = 1; step <= 4; ++step) {
      const kernels::RoundingKey key = rounding_key(9, "layer.weight", step);
      const std::vector<float> expected = rounded(values, key, begin);
      const at::Tensor actual = rounded_stochastically(tensor, begin, key);
      EXPECT_EQ(actual.scalar_type(), at::kBFloat16);
      const at::Tensor wide = actual.to(at::kFloat);
      EXPECT_EQ(std::vector<float>(wide.const_data_ptr<float>(), wide.const_data_ptr<float>() + 5000), expected);
    }
  }
  EXPECT_EQ(tensor[0].item<float>(), 0);  // the input does not change
}

}  // namespace stochastic_rounding_test
}  // namespace lockstep::optim
