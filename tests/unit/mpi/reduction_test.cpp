// SPDX-License-Identifier: BSD-3-Clause
#include "reduction.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

namespace lockstep::mpi {
namespace {

/// The widths that this processor has.
std::vector<VectorWidth> widths() {
  std::vector<VectorWidth> all = {VectorWidth::sse, VectorWidth::avx2, VectorWidth::avx512};
  std::erase_if(all, [](VectorWidth width) { return width > widest_vectors(); });
  return all;
}

template <class T>
std::vector<T> reduced(const std::vector<std::vector<T>>& ranks, DType dtype, ReduceOp op,
                       VectorWidth width = widest_vectors()) {
  std::vector<T> result(ranks[0].size());
  std::vector<const std::byte*> sources;
  for (const auto& values : ranks) sources.push_back(reinterpret_cast<const std::byte*>(values.data()));
  auto* target = reinterpret_cast<std::byte*>(result.data());
  reduce(sources, std::span(&target, 1), result.size(), dtype, op, width);
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
  for (const VectorWidth width : widths()) {
    EXPECT_EQ(reduced<T>({high, low, high}, dtype, ReduceOp::min, width), low);
    EXPECT_EQ(reduced<T>({low, high, low}, dtype, ReduceOp::max, width), high);
    EXPECT_EQ(reduced<T>({low, high}, dtype, ReduceOp::sum, width), sums);
  }
}

TEST(ReductionTest, EveryTypeAndOperation) {
  expect_min_max_sum<float>(DType::float32);
  expect_min_max_sum<double>(DType::float64);
  expect_min_max_sum<std::int32_t>(DType::int32);
  expect_min_max_sum<std::int64_t>(DType::int64);
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

TEST(ReductionTest, EveryWidthHasTheBitsOfAPlainLoop) {
  for (const std::size_t world_size : {1U, 2U, 5U}) {
    const auto ranks = random_ranks(world_size, 1003);
    for (const VectorWidth width : widths()) {
      EXPECT_EQ(reduced(ranks, DType::float32, ReduceOp::average, width), averages_by_plain_loop(ranks))
          << static_cast<int>(width) << " bytes, " << world_size << " ranks";
    }
  }
}

TEST(ReductionTest, PiecesAtOddAddressesInPlaceHaveTheBitsOfTheWhole) {
  constexpr std::size_t kCount = 10'000;
  constexpr std::size_t kPiece = 777;
  const auto ranks = random_ranks(5, kCount);
  const std::vector<float> whole = averages_by_plain_loop(ranks);
  for (const VectorWidth width : widths()) {
    std::vector<std::vector<std::byte>> shifted(ranks.size(), std::vector<std::byte>(kCount * sizeof(float) + 1));
    for (std::size_t begin = 0; begin < kCount; begin += kPiece) {
      const std::size_t count = std::min(kPiece, kCount - begin);
      std::vector<std::byte*> places;
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        places.push_back(shifted[rank].data() + 1 + begin * sizeof(float));
        std::memcpy(places.back(), &ranks[rank][begin], count * sizeof(float));
      }
      const std::vector<const std::byte*> sources(places.begin(), places.end());
      reduce(sources, places, count, DType::float32, ReduceOp::average, width);
    }
    for (const auto& bytes : shifted) {
      EXPECT_EQ(std::memcmp(bytes.data() + 1, whole.data(), kCount * sizeof(float)), 0) << static_cast<int>(width);
    }
  }
}

TEST(ReductionTest, RefusesOtherTypesAndAveragesOfIntegers) {
  EXPECT_NO_THROW(require_reducible(DType::float64, ReduceOp::average));
  EXPECT_NO_THROW(require_reducible(DType::int64, ReduceOp::max));
  EXPECT_THROW(require_reducible(DType::int32, ReduceOp::average), std::logic_error);
  EXPECT_THROW(require_reducible(DType::bfloat16, ReduceOp::sum), std::logic_error);
}

}  // namespace
}  // namespace lockstep::mpi
