// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/gelu.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "support/levels.hpp"

namespace lockstep::kernels {
namespace gelu_test {

/// Numbers whose digits differ, between -9 and 9.
std::vector<float> numbers(std::int64_t count) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(9.0F * std::sin(1.7F * static_cast<float>(i + 1)));
  return values;
}

template <class T>
std::vector<T> rounded(const std::vector<float>& values) {
  std::vector<T> result;
  for (const float value : values) {
    if constexpr (std::is_same_v<T, float>) {
      result.push_back(value);
    } else {
      result.push_back(to_bfloat16(value));
    }
  }
  return result;
}

template <class T>
void expect_same_gradients_alone(const std::vector<float>& from) {
  const std::vector<T> values = rounded<T>(from);
  std::vector<T> all(values.size());
  gelu_gradient(static_cast<std::int64_t>(values.size()), values.data(), values.data(), all.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    T alone;
    gelu_gradient(1, &values[i], &values[i], &alone);
    EXPECT_EQ(std::memcmp(&alone, &all[i], sizeof(T)), 0) << i;
  }
}

// Lanes divide a batch in other places on other numbers of ranks.
TEST(GeluKernelTest, AValueHasTheSameBitsInAVectorAndAlone) {
  testing::at_each_level([] {
    const std::vector<float> values = numbers(77);  // vectors of 16, of 8 and of 4, and a rest
    std::vector<float> all(values.size());
    gelu_output(static_cast<std::int64_t>(values.size()), values.data(), all.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      float alone = 0;
      gelu_output(1, &values[i], &alone);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(alone), std::bit_cast<std::uint32_t>(all[i])) << values[i];
    }
    expect_same_gradients_alone<float>(values);
    expect_same_gradients_alone<BFloat16>(values);
  });
}

}  // namespace gelu_test
}  // namespace lockstep::kernels
