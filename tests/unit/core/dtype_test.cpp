// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/tensor.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace lockstep {
namespace dtype_test {

TEST(DTypeTest, NamesAreReadBack) {
  for (const DType dtype : kAllDTypes) EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype);
  EXPECT_THROW(dtype_from_name("float31"), ConfigError);
}

TEST(DTypeTest, SizesAreThoseOfTheStandardTypes) {
  EXPECT_EQ(size_of(DType::float32), 4U);
  EXPECT_EQ(size_of(DType::float64), 8U);
  EXPECT_EQ(size_of(DType::bfloat16), 2U);
  EXPECT_EQ(size_of(DType::complex128), 16U);
  EXPECT_EQ(size_of(DType::boolean), 1U);
}

// Every 16-bit pattern that is a number survives the way to float and back.
TEST(DTypeTest, SixteenBitNumbersSurviveTheRoundTrip) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    if (!std::isnan(half_to_float(pattern))) {
      EXPECT_EQ(float_to_half(half_to_float(pattern)), pattern);
    }
    if (!std::isnan(bfloat16_to_float(pattern))) {
      EXPECT_EQ(float_to_bfloat16(bfloat16_to_float(pattern)), pattern);
    }
  }
}

TEST(DTypeTest, RoundsToEvenAndOverflowsToInfinity) {
  EXPECT_EQ(float_to_bfloat16(1.0F + 0x1p-8F), float_to_bfloat16(1.0F));            // tie, down to even
  EXPECT_EQ(bfloat16_to_float(float_to_bfloat16(1.0F + 0x3p-8F)), 1.0F + 0x1p-6F);  // tie, up to even
  EXPECT_EQ(half_to_float(float_to_half(65519.0F)), 65504.0F);
  EXPECT_TRUE(std::isinf(half_to_float(float_to_half(65520.0F))));
  EXPECT_EQ(half_to_float(float_to_half(0x1p-25F)), 0.0F);        // tie between 0 and 2^-24
  EXPECT_EQ(half_to_float(float_to_half(0x1.8p-24F)), 0x1p-23F);  // tie, up to even
  EXPECT_TRUE(std::isnan(half_to_float(float_to_half(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace dtype_test
}  // namespace lockstep
