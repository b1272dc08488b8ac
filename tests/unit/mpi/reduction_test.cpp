// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "mpi/shared/job.hpp"
#include "support/levels.hpp"

namespace lockstep::mpi {
namespace reduction_test {

template <class T>
std::vector<T> reduced(const std::vector<std::vector<T>>& ranks, DType dtype, ReduceOp op) {
  std::vector<T> result(ranks[0].size());
  std::vector<const std::byte*> sources;
  for (const auto& values : ranks) sources.push_back(reinterpret_cast<const std::byte*>(values.data()));
  auto* target = reinterpret_cast<std::byte*>(result.data());
  reduce(sources, std::span(&target, 1), result.size(), {.dtype = dtype, .op = op});
  return result;
}

TEST(ReductionTest, SumsInTheOrderOfTheSources) {
  // (big + 1) - big loses the 1, (big - big) + 1 keeps it: only the order tells.
  const std::vector<std::vector<float>> ranks = {{1e8F, 1e8F, 1.0F}, {1.0F, -1e8F, 1e8F}, {-1e8F, 1.0F, -1e8F}};
  EXPECT_EQ(reduced(ranks, DType::float32, ReduceOp::sum), (std::vector<float>{0, 1, 0}));
}

TEST(ReductionTest, AverageMultipliesTheSumByTheReciprocal) {
  const float third = 1.0F / 3.0F;
  EXPECT_EQ(reduced<float>({{1, 5}, {2, 6}, {2, 6}}, DType::float32, ReduceOp::average),
            (std::vector<float>{5 * third, 17 * third}));
}

TEST(ReductionTest, KeepsNegativeZeroAndWrapsIntegers) {
  const auto zero = reduced<float>({{-0.0F}, {-0.0F}}, DType::float32, ReduceOp::sum);
  EXPECT_TRUE(std::signbit(zero[0]));
  constexpr auto kMax = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(reduced<std::int32_t>({{kMax}, {1}}, DType::int32, ReduceOp::sum)[0],
            std::numeric_limits<std::int32_t>::min());
}

template <class T>
void expect_min_max_sum(DType dtype) {
  std::vector<T> low(77);  // some vectors of every width, and a tail
  std::vector<T> high(77);
  std::vector<T> sums(77);
  for (std::size_t i = 0; i < low.size(); ++i) {
    low[i] = static_cast<T>(static_cast<int>(i) - 40);
    high[i] = static_cast<T>(static_cast<int>(i) + 2);
    sums[i] = static_cast<T>(2 * static_cast<int>(i) - 38);
  }
  testing::at_each_level([&] {
    EXPECT_EQ(reduced<T>({high, low, high}, dtype, ReduceOp::min), low);
    EXPECT_EQ(reduced<T>({low, high, low}, dtype, ReduceOp::max), high);
    EXPECT_EQ(reduced<T>({low, high}, dtype, ReduceOp::sum), sums);
  });
}

TEST(ReductionTest, EveryTypeAndOperation) {
  expect_min_max_sum<float>(DType::float32);
  expect_min_max_sum<double>(DType::float64);
  expect_min_max_sum<std::int32_t>(DType::int32);
  expect_min_max_sum<std::int64_t>(DType::int64);
}

TEST(ReductionTest, BytesWrapAroundAndCompareWithoutSign) {
  std::vector<std::uint8_t> low(200);
  std::vector<std::uint8_t> high(200);
  std::vector<std::uint8_t> sums(200);
  std::vector<std::uint8_t> products(200);
  for (std::size_t i = 0; i < low.size(); ++i) {
    low[i] = static_cast<std::uint8_t>(i);
    high[i] = static_cast<std::uint8_t>(i + 50);
    sums[i] = static_cast<std::uint8_t>(2 * i + 50);
    products[i] = static_cast<std::uint8_t>(i * (i + 50));
  }
  testing::at_each_level([&] {
    EXPECT_EQ(reduced<std::uint8_t>({high, low}, DType::uint8, ReduceOp::min), low);
    EXPECT_EQ(reduced<std::uint8_t>({high, low}, DType::uint8, ReduceOp::max), high);
    EXPECT_EQ(reduced<std::uint8_t>({high, low}, DType::uint8, ReduceOp::sum), sums);
    EXPECT_EQ(reduced<std::uint8_t>({high, low}, DType::uint8, ReduceOp::product), products);
  });
}

template <class T>
void expect_products(DType dtype) {
  std::vector<T> values(77);
  std::vector<T> cubes(77);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int value = static_cast<int>(i) - 40;
    values[i] = static_cast<T>(value);
    cubes[i] = static_cast<T>(value * value * value);
  }
  testing::at_each_level([&] { EXPECT_EQ(reduced<T>({values, values, values}, dtype, ReduceOp::product), cubes); });
}

TEST(ReductionTest, Products) {
  expect_products<float>(DType::float32);
  expect_products<double>(DType::float64);
  expect_products<std::int32_t>(DType::int32);
  expect_products<std::int64_t>(DType::int64);
  const auto wrapped = reduced<std::int32_t>({{1 << 30}, {6}}, DType::int32, ReduceOp::product);
  EXPECT_EQ(wrapped[0], std::numeric_limits<std::int32_t>::min());
}

TEST(ReductionTest, MinAndMaxOfANanAreNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> numbers(77, 1);
  const std::vector<float> nans(77, nan);
  testing::at_each_level([&] {
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
      for (const auto& ranks : {std::vector{numbers, nans, numbers}, {nans, numbers}, {numbers, nans}}) {
        const std::vector<float> result = reduced<float>(ranks, DType::float32, op);
        EXPECT_TRUE(std::all_of(result.begin(), result.end(), [](float value) { return std::isnan(value); }));
      }
    }
  });
}

TEST(ReductionTest, MinOfFlagsIsAllAndMaxIsAny) {
  const std::vector<std::uint8_t> one = {0, 0, 1, 1};
  const std::vector<std::uint8_t> other = {0, 1, 0, 1};
  EXPECT_EQ(reduced<std::uint8_t>({one, other}, DType::boolean, ReduceOp::min),
            (std::vector<std::uint8_t>{0, 0, 0, 1}));
  EXPECT_EQ(reduced<std::uint8_t>({one, other}, DType::boolean, ReduceOp::max),
            (std::vector<std::uint8_t>{0, 1, 1, 1}));
}

std::vector<std::vector<float>> random_ranks(std::size_t world_size, std::size_t count) {
  std::mt19937 generator(7);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> ranks(world_size, std::vector<float>(count));
  for (auto& values : ranks) {
    for (float& value : values) value = normal(generator);
  }
  return ranks;
}

std::vector<float> averages_by_plain_loop(const std::vector<std::vector<float>>& ranks) {
  std::vector<float> result = ranks[0];
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    for (std::size_t i = 0; i < result.size(); ++i) result[i] += ranks[rank][i];
  }
  for (float& value : result) value *= 1.0F / static_cast<float>(ranks.size());
  return result;
}

TEST(ReductionTest, EveryLevelHasTheBitsOfAPlainLoop) {
  for (const std::size_t world_size : {1U, 2U, 5U}) {
    const auto ranks = random_ranks(world_size, 1003);
    testing::at_each_level([&] {
      EXPECT_EQ(reduced(ranks, DType::float32, ReduceOp::average), averages_by_plain_loop(ranks))
          << world_size << " ranks";
    });
  }
}

TEST(ReductionTest, PiecesAtOddAddressesInPlaceHaveTheBitsOfTheWhole) {
  constexpr std::size_t kCount = 10'000;
  constexpr std::size_t kPiece = 777;
  const auto ranks = random_ranks(5, kCount);
  const std::vector<float> whole = averages_by_plain_loop(ranks);
  testing::at_each_level([&] {
    std::vector<std::vector<std::byte>> shifted(ranks.size(), std::vector<std::byte>(kCount * sizeof(float) + 1));
    for (std::size_t begin = 0; begin < kCount; begin += kPiece) {
      const std::size_t count = std::min(kPiece, kCount - begin);
      std::vector<std::byte*> places;
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        places.push_back(shifted[rank].data() + 1 + begin * sizeof(float));
        std::memcpy(places.back(), &ranks[rank][begin], count * sizeof(float));
      }
      const std::vector<const std::byte*> sources(places.begin(), places.end());
      reduce(sources, places, count, {.dtype = DType::float32, .op = ReduceOp::average});
    }
    for (const auto& bytes : shifted) {
      EXPECT_EQ(std::memcmp(bytes.data() + 1, whole.data(), kCount * sizeof(float)), 0);
    }
  });
}

/// The bits of a 16-bit type and how they become numbers.
struct HalfType {
  DType dtype;
  float (*to_float)(std::uint16_t);
  std::uint16_t (*from_float)(float);
};
const HalfType kHalfTypes[] = {{DType::float16, half_to_float, float_to_half},
                               {DType::bfloat16, bfloat16_to_float, float_to_bfloat16}};

std::vector<std::uint16_t> every_pattern(std::size_t shift) {
  std::vector<std::uint16_t> bits(65536 + 5);  // a tail, too
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i * 40503 + shift);
  return bits;
}

/// Combines three 16-bit numbers as float32 and rounds once.
template <class Combine>
std::vector<std::uint16_t> rounded_once(const HalfType& type, const std::vector<std::vector<std::uint16_t>>& ranks,
                                        Combine combine) {
  std::vector<std::uint16_t> result(ranks[0].size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = type.from_float(
        combine(combine(type.to_float(ranks[0][i]), type.to_float(ranks[1][i])), type.to_float(ranks[2][i])));
  }
  return result;
}

/// Equal bits, but any NaN for a NaN: which payload survives a sum of two is not defined.
void expect_same_halves(const HalfType& type, const std::vector<std::uint16_t>& values,
                        const std::vector<std::uint16_t>& expected) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool are_nan = std::isnan(type.to_float(values[i])) && std::isnan(type.to_float(expected[i]));
    wrong += are_nan || values[i] == expected[i] ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0U) << name_of(type.dtype);
}

// Case 110.
TEST(ReductionTest, SixteenBitFloatsAreCombinedAsFloat32AndRoundedOnce) {
  const std::vector<std::vector<std::uint16_t>> ranks = {every_pattern(0), every_pattern(11), every_pattern(65099)};
  for (const HalfType& type : kHalfTypes) {
    const auto sums = rounded_once(type, ranks, [](float a, float b) { return a + b; });
    const auto products = rounded_once(type, ranks, [](float a, float b) { return a * b; });
    testing::at_each_level([&] {
      expect_same_halves(type, reduced(ranks, type.dtype, ReduceOp::sum), sums);
      expect_same_halves(type, reduced(ranks, type.dtype, ReduceOp::product), products);
    });
  }
}

TEST(ReductionTest, SixteenBitRoundingKeepsEveryNumberAndEveryNan) {
  for (const HalfType& type : kHalfTypes) {
    testing::at_each_level([&] {
      const auto values = every_pattern(3);
      const auto kept = reduced<std::uint16_t>({values}, type.dtype, ReduceOp::sum);
      expect_same_halves(type, kept, values);
    });
  }
}

TEST(ReductionTest, SixteenBitTiesGoToEvenAndOverflowBecomesInfinity) {
  // 256 + 1 and 258 + 1 lie halfway between bfloat16 numbers, 2048 + 1 and 2050 + 1 between float16 numbers.
  const auto sum_of = [](const HalfType& type, float a, float b) {
    const auto bits = reduced<std::uint16_t>({{type.from_float(a)}, {type.from_float(b)}}, type.dtype, ReduceOp::sum);
    return type.to_float(bits[0]);
  };
  const HalfType& float16 = kHalfTypes[0];
  const HalfType& bfloat16 = kHalfTypes[1];
  EXPECT_EQ(sum_of(bfloat16, 256, 1), 256);
  EXPECT_EQ(sum_of(bfloat16, 258, 1), 260);
  EXPECT_EQ(sum_of(float16, 2048, 1), 2048);
  EXPECT_EQ(sum_of(float16, 2050, 1), 2052);
  EXPECT_EQ(sum_of(float16, 60000, 60000), std::numeric_limits<float>::infinity());
  EXPECT_EQ(sum_of(bfloat16, -3e38F, -3e38F), -std::numeric_limits<float>::infinity());
  // Rounded after each step, 256 + 1 + 1 would stay 256.
  const std::uint16_t one = bfloat16.from_float(1);
  const auto bits = reduced<std::uint16_t>({{bfloat16.from_float(256)}, {one}, {one}}, DType::bfloat16, ReduceOp::sum);
  EXPECT_EQ(bfloat16_to_float(bits[0]), 258);
}

TEST(ReductionTest, ManySourcesOfSixteenBits) {
  const std::vector<std::vector<std::uint16_t>> ranks(300, std::vector<std::uint16_t>(1000, float_to_half(3)));
  EXPECT_EQ(reduced(ranks, DType::float16, ReduceOp::sum), std::vector<std::uint16_t>(1000, float_to_half(900)));
  EXPECT_EQ(reduced(ranks, DType::float16, ReduceOp::max), ranks[0]);
}

TEST(ReductionTest, RefusesOtherTypesAveragesOfIntegersAndSumsOfFlags) {
  EXPECT_NO_THROW(require_reducible(DType::float64, ReduceOp::average));
  EXPECT_NO_THROW(require_reducible(DType::bfloat16, ReduceOp::average));
  EXPECT_NO_THROW(require_reducible(DType::int64, ReduceOp::max));
  EXPECT_NO_THROW(require_reducible(DType::boolean, ReduceOp::max));
  EXPECT_THROW(require_reducible(DType::int32, ReduceOp::average), std::logic_error);
  EXPECT_THROW(require_reducible(DType::uint8, ReduceOp::average), std::logic_error);
  EXPECT_THROW(require_reducible(DType::boolean, ReduceOp::sum), std::logic_error);
  EXPECT_THROW(require_reducible(DType::complex64, ReduceOp::sum), std::logic_error);
}

}  // namespace reduction_test
}  // namespace lockstep::mpi
