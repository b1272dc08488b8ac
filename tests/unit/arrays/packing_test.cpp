// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/packing.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::arrays {
namespace packing_test {

using Integers = std::vector<std::int64_t>;
using Reals = std::vector<double>;
using Texts = std::vector<std::string>;

ArrayInfo array_of(NumberKind kind, std::size_t bytes, const Attributes& attributes) {
  ArrayInfo info;
  info.path = "z";
  info.type = {.kind = kind, .bytes = bytes};
  info.attributes = attributes;
  return info;
}

template <class Value, class Stored>
std::vector<Value> decoded(NumberKind kind, const std::vector<Stored>& stored, const Attributes& attributes) {
  const Packing packing = packing_of("file.nc", array_of(kind, sizeof(Stored), attributes));
  std::vector<Value> values(stored.size());
  decode(packing, std::as_bytes(std::span(stored)), values);
  return values;
}

/// NaN as 12345, which compares.
std::vector<double> comparable(std::vector<double> values) {
  for (double& value : values) value = std::isnan(value) ? 12345 : value;
  return values;
}

TEST(PackingTest, ScaleAndOffsetAreOptional) {
  const std::vector<std::int16_t> stored = {-2, 0, 3};
  const auto values = [&](const Attributes& attributes) {
    return decoded<double>(NumberKind::signed_integer, stored, attributes);
  };
  EXPECT_EQ(values({}), (Reals{-2, 0, 3}));
  EXPECT_EQ(values({{"scale_factor", Reals{0.5}}}), (Reals{-1, 0, 1.5}));
  EXPECT_EQ(values({{"add_offset", Integers{10}}}), (Reals{8, 10, 13}));
  EXPECT_EQ(values({{"scale_factor", Integers{2}}, {"add_offset", Reals{0.25}}}), (Reals{-3.75, 0.25, 6.25}));
  EXPECT_EQ(values({{"scale_factor", Reals{0}}, {"add_offset", Reals{7}}}), (Reals{7, 7, 7}));
}

/// 0.1 * 3 + 0.2 in double, rounded to float32 once.
TEST(PackingTest, OneRounding) {
  const Attributes attributes = {{"scale_factor", Reals{0.1}}, {"add_offset", Reals{0.2}}};
  const std::vector<std::int32_t> stored = {3, 16777217, -5};
  const auto values = decoded<float>(NumberKind::signed_integer, stored, attributes);
  for (std::size_t i = 0; i < stored.size(); ++i) {
    EXPECT_EQ(values[i], static_cast<float>(static_cast<double>(stored[i]) * 0.1 + 0.2));
  }
}

TEST(PackingTest, GapsAreComparedAsStored) {
  const std::vector<std::int16_t> stored = {-32767, -999, 5, 7};
  const Attributes attributes = {
      {"_FillValue", Integers{-32767}}, {"missing_value", Integers{-999, 7}}, {"scale_factor", Reals{0.5}}};
  EXPECT_EQ(comparable(decoded<double>(NumberKind::signed_integer, stored, attributes)),
            (Reals{12345, 12345, 2.5, 12345}));
  // A gap that the type does not have is none, such as 32768 + 5 or 5.5.
  const Attributes others = {{"missing_value", Reals{5.5, 1e20, 32773 + 65536.0}}, {"_FillValue", Reals{-999}}};
  EXPECT_EQ(comparable(decoded<double>(NumberKind::signed_integer, stored, others)), (Reals{-32767, 12345, 5, 7}));
}

TEST(PackingTest, GapsOfRealNumbersHaveTheirType) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<float> stored = {1e20F, 1.5F, std::numeric_limits<float>::quiet_NaN()};
  const Attributes attributes = {{"_FillValue", Reals{1e20}}, {"missing_value", Reals{nan}}};
  EXPECT_EQ(comparable(decoded<double>(NumberKind::real, stored, attributes)), (Reals{12345, 1.5, 12345}));
  EXPECT_TRUE(packing_of("f", array_of(NumberKind::real, 4, {{"missing_value", Reals{nan}}})).gaps.empty());
}

TEST(PackingTest, Half) {
  const std::vector<std::uint16_t> stored = {0x3C00, 0xC000, 0x7E00, 0x0001};  // 1, -2, NaN, 2^-24
  const Attributes attributes = {{"_FillValue", Reals{-2}}};
  EXPECT_EQ(comparable(decoded<double>(NumberKind::real, stored, attributes)),
            (Reals{1, 12345, 12345, std::ldexp(1.0, -24)}));
}

TEST(PackingTest, UnsignedAttribute) {
  const std::vector<std::int8_t> stored = {-1, -2, 3};
  const Attributes attributes = {
      {"_Unsigned", Texts{"true"}}, {"_FillValue", Integers{-1}}, {"valid_range", Integers{0, -2}}};
  EXPECT_EQ(comparable(decoded<double>(NumberKind::signed_integer, stored, attributes)), (Reals{12345, 254, 3}));
  const Packing packing = packing_of("f", array_of(NumberKind::signed_integer, 1, attributes));
  EXPECT_EQ(packing.type.kind, NumberKind::unsigned_integer);
  EXPECT_TRUE(packing.has_range);
  EXPECT_EQ(packing.lowest, 0);
  EXPECT_EQ(packing.highest, 254);
  const std::vector<std::uint8_t> reverse = {255, 3};
  EXPECT_EQ(decoded<double>(NumberKind::unsigned_integer, reverse, {{"_Unsigned", Texts{"false"}}}), (Reals{-1, 3}));
}

TEST(PackingTest, LargeIntegers) {
  const std::vector<std::uint64_t> stored = {~std::uint64_t{0}, std::uint64_t{1} << 63, 5};
  const Attributes attributes = {{"_FillValue", std::vector<std::uint64_t>{~std::uint64_t{0}}}};
  EXPECT_EQ(comparable(decoded<double>(NumberKind::unsigned_integer, stored, attributes)),
            (Reals{12345, std::ldexp(1.0, 63), 5}));
  const std::vector<std::int64_t> integers = {std::numeric_limits<std::int64_t>::min(), -5};
  const Attributes lowest = {{"missing_value", Integers{std::numeric_limits<std::int64_t>::min()}}};
  EXPECT_EQ(comparable(decoded<double>(NumberKind::signed_integer, integers, lowest)), (Reals{12345, -5}));
}

TEST(PackingTest, Limits) {
  const Packing lower = packing_of("f", array_of(NumberKind::signed_integer, 2, {{"valid_min", Integers{-5}}}));
  EXPECT_EQ(lower.lowest, -5);
  EXPECT_EQ(lower.highest, std::numeric_limits<double>::infinity());
  EXPECT_FALSE(packing_of("f", array_of(NumberKind::real, 4, {})).has_range);
}

TEST(PackingTest, BlocksAreSeamless) {
  std::vector<std::int16_t> stored(5000);
  for (std::size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<std::int16_t>(i);
  const auto values = decoded<float>(NumberKind::signed_integer, stored, {{"_FillValue", Integers{4999}}});
  for (std::size_t i = 0; i + 1 < stored.size(); ++i) ASSERT_EQ(values[i], static_cast<float>(i));
  EXPECT_TRUE(std::isnan(values.back()));
}

std::string error_of_packing(const Attributes& attributes) {
  try {
    packing_of("file.nc", array_of(NumberKind::signed_integer, 2, attributes));
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(PackingTest, WrongAttributesAreNamed) {
  EXPECT_EQ(error_of_packing({{"scale_factor", Texts{"2"}}}),
            "file.nc: variable 'z': its attribute scale_factor is a text; it must be a number");
  EXPECT_EQ(error_of_packing({{"add_offset", Reals{1, 2}}}),
            "file.nc: variable 'z': its attribute add_offset has 2 numbers; it must have one");
  EXPECT_NE(error_of_packing({{"scale_factor", Reals{std::nan("")}}}).find("not finite"), std::string::npos);
  EXPECT_NE(error_of_packing({{"valid_range", Reals{1}}}).find("must have two"), std::string::npos);
  EXPECT_NE(error_of_packing({{"_FillValue", Texts{"x"}}}).find("_FillValue"), std::string::npos);
}

}  // namespace packing_test
}  // namespace lockstep::arrays
