// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/attention.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/levels.hpp"
#include "support/unaligned_floats.hpp"

namespace lockstep::kernels {
namespace attention_test {

using lockstep::testing::at_each_level;
using lockstep::testing::largest_error;
using lockstep::testing::random_numbers;
using lockstep::testing::UnalignedFloats;

struct Size {
  std::int64_t samples;
  std::int64_t tokens;
  std::int64_t heads;
  std::int64_t features;
  std::int64_t queries;

  std::int64_t all_heads() const { return samples * heads; }
  std::int64_t outputs() const { return samples * queries * heads * features; }
  /// Place of a feature of a token in the projection. @param part  0: query, 1: key, 2: value
  std::int64_t place(std::int64_t number, std::int64_t token, std::int64_t part) const {
    return (((number / heads * tokens + token) * 3 + part) * heads + number % heads) * features;
  }
  std::int64_t output_place(std::int64_t number, std::int64_t query) const {
    return ((number / heads * queries + query) * heads + number % heads) * features;
  }
};

// Whole and partial tiles of rows and columns, one query, and more queries than are worked on together.
const std::vector<Size> kSizes = {{2, 197, 2, 64, 197}, {1, 5, 2, 16, 1},   {2, 16, 1, 32, 16}, {1, 300, 2, 16, 300},
                                  {1, 17, 2, 48, 3},    {1, 1, 1, 16, 1},   {2, 24, 2, 64, 24}, {1, 600, 1, 32, 6},
                                  {3, 9, 2, 16, 9},     {1, 43, 1, 48, 35}, {1, 30, 1, 80, 23}};

/// Some weights of a query are close to 1, most are small: products of up to 30, which float32 rounds by 2e-6, are
/// powers.
UnalignedFloats projection(const Size& size, float factor = 2) {
  UnalignedFloats qkv = random_numbers(size.samples * size.tokens * 3 * size.heads * size.features, 1);
  for (std::int64_t i = 0; i < qkv.size(); ++i) qkv[i] *= factor;
  return qkv;
}

/// The attention by its definition in double.
struct Expected {
  std::vector<double> output;
  std::vector<double> gradient;  ///< gradient of the projection
};

double product(const float* a, const float* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

/// The weights of a query, whose sum is 1.
std::vector<double> weights_of(const Size& size, const UnalignedFloats& qkv, std::int64_t head, std::int64_t query) {
  std::vector<double> weights(static_cast<std::size_t>(size.tokens));
  for (std::int64_t k = 0; k < size.tokens; ++k) {
    weights[static_cast<std::size_t>(k)] =
        product(qkv.data() + size.place(head, query, 0), qkv.data() + size.place(head, k, 1), size.features) /
        std::sqrt(static_cast<double>(size.features));
  }
  const double largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - largest);
  for (double& weight : weights) weight /= sum;
  return weights;
}

void add(double factor, const float* values, std::int64_t count, double* target) {
  for (std::int64_t i = 0; i < count; ++i) target[i] += factor * double{values[i]};
}

void add_query(const Size& size, const UnalignedFloats& qkv, const UnalignedFloats& gradient, std::int64_t head,
               std::int64_t query, Expected& expected) {
  const std::vector<double> weights = weights_of(size, qkv, head, query);
  const float* const of_output = gradient.data() + size.output_place(head, query);
  std::vector<double> of_weights(weights.size());
  double mean = 0;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    const float* const value = qkv.data() + size.place(head, static_cast<std::int64_t>(k), 2);
    of_weights[k] = product(of_output, value, size.features);
    mean += weights[k] * of_weights[k];
    add(weights[k], value, size.features, expected.output.data() + size.output_place(head, query));
  }
  for (std::size_t k = 0; k < weights.size(); ++k) {
    const auto token = static_cast<std::int64_t>(k);
    const double slope = weights[k] * (of_weights[k] - mean) / std::sqrt(static_cast<double>(size.features));
    double* const target = expected.gradient.data();
    add(slope, qkv.data() + size.place(head, token, 1), size.features, target + size.place(head, query, 0));
    add(slope, qkv.data() + size.place(head, query, 0), size.features, target + size.place(head, token, 1));
    add(weights[k], of_output, size.features, target + size.place(head, token, 2));
  }
}

Expected expected(const Size& size, const UnalignedFloats& qkv, const UnalignedFloats& gradient) {
  Expected result{.output = std::vector<double>(static_cast<std::size_t>(size.outputs())),
                  .gradient = std::vector<double>(static_cast<std::size_t>(qkv.size()))};
  for (std::int64_t head = 0; head < size.all_heads(); ++head) {
    for (std::int64_t query = 0; query < size.queries; ++query) add_query(size, qkv, gradient, head, query, result);
  }
  return result;
}

struct Result {
  UnalignedFloats output;
  UnalignedFloats gradient;
};

/// @param step  heads that are computed in one call
Result of_kernels(const Size& size, const UnalignedFloats& qkv, const UnalignedFloats& gradient, std::int64_t step) {
  const SelfAttention arguments{.qkv = qkv.data(),
                                .samples = size.samples,
                                .tokens = size.tokens,
                                .queries = size.queries,
                                .heads = size.heads,
                                .features = size.features};
  Result result{.output = UnalignedFloats(size.outputs(), 99), .gradient = UnalignedFloats(qkv.size(), 99)};
  UnalignedFloats log_sums(size.all_heads() * size.queries);
  for (std::int64_t head = 0; head < size.all_heads(); head += step) {
    const HeadRange range{head, std::min(size.all_heads(), head + step)};
    write_self_attention(arguments, range, result.output.data(), log_sums.data());
    write_self_attention_gradient(arguments, range, result.output.data(), log_sums.data(), gradient.data(),
                                  result.gradient.data());
  }
  return result;
}

double largest_of(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

TEST(AttentionKernelsTest, AgreeWithTheDefinitionInDouble) {
  at_each_level([] {
    for (const Size& size : kSizes) {
      SCOPED_TRACE(std::to_string(size.tokens) + " tokens, " + std::to_string(size.features) + " features");
      const UnalignedFloats qkv = projection(size);
      const UnalignedFloats gradient = random_numbers(size.outputs(), 2);
      const Expected wanted = expected(size, qkv, gradient);
      const Result got = of_kernels(size, qkv, gradient, size.all_heads());
      EXPECT_LT(largest_error(got.output, wanted.output), 5e-6 * largest_of(wanted.output));
      EXPECT_LT(largest_error(got.gradient, wanted.gradient), 5e-6 * largest_of(wanted.gradient));
    }
  });
}

// Large products would overflow without the subtraction of the maximum. They are exponents of up to 1e4, which float32
// rounds by 5e-4.
TEST(AttentionKernelsTest, LargeProductsAreFinite) {
  const Size size = kSizes[9];
  const UnalignedFloats qkv = projection(size, 60);
  const UnalignedFloats gradient = random_numbers(size.outputs(), 2);
  const Expected wanted = expected(size, qkv, gradient);
  at_each_level([&] {
    const Result got = of_kernels(size, qkv, gradient, size.all_heads());
    EXPECT_LT(largest_error(got.output, wanted.output), 1e-3 * largest_of(wanted.output));
    EXPECT_TRUE(std::isfinite(largest_error(got.gradient, wanted.gradient)));
  });
}

// Threads compute ranges of heads.
TEST(AttentionKernelsTest, BitsDoNotDependOnTheRange) {
  const Size size = kSizes[0];
  const UnalignedFloats qkv = projection(size);
  const UnalignedFloats gradient = random_numbers(size.outputs(), 2);
  at_each_level([&] {
    const Result whole = of_kernels(size, qkv, gradient, size.all_heads());
    const Result parts = of_kernels(size, qkv, gradient, 1);
    EXPECT_EQ(parts.output, whole.output);
    EXPECT_EQ(parts.gradient, whole.gradient);
  });
}

TEST(AttentionKernelsTest, NaNStays) {
  const Size size{1, 20, 2, 16, 20};
  UnalignedFloats qkv = projection(size);
  qkv[size.place(/*number=*/0, /*token=*/3, /*part=*/1) + 5] = std::numeric_limits<float>::quiet_NaN();
  const UnalignedFloats gradient = random_numbers(size.outputs(), 2);
  at_each_level([&] {
    const Result got = of_kernels(size, qkv, gradient, size.all_heads());
    for (std::int64_t i = 0; i < size.features; ++i) {
      EXPECT_TRUE(std::isnan(got.output[size.output_place(0, 7) + i]));
      EXPECT_FALSE(std::isnan(got.output[size.output_place(1, 7) + i]));
      EXPECT_TRUE(std::isnan(got.gradient[size.place(0, 7, 0) + i]));
    }
  });
}

}  // namespace attention_test
}  // namespace lockstep::kernels
