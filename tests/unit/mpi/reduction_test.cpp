// SPDX-License-Identifier: BSD-3-Clause
#include "reduction.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

namespace lockstep::mpi {
namespace {

template <class T>
std::vector<T> reduced(const std::vector<std::vector<T>>& ranks, DType dtype, ReduceOp op) {
  std::vector<T> result(ranks[0].size());
  std::vector<const std::byte*> sources;
  for (const auto& values : ranks) sources.push_back(reinterpret_cast<const std::byte*>(values.data()));
  auto* target = reinterpret_cast<std::byte*>(result.data());
  reduce(sources, std::span(&target, 1), result.size(), dtype, op);
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

TEST(ReductionTest, MinAndMax) {
  EXPECT_EQ(reduced<double>({{3, -1}, {2, 5}, {4, 0}}, DType::float64, ReduceOp::min), (std::vector<double>{2, -1}));
  EXPECT_EQ(reduced<std::int64_t>({{3, -1}, {2, 5}, {4, 0}}, DType::int64, ReduceOp::max),
            (std::vector<std::int64_t>{4, 5}));
}

TEST(ReductionTest, EveryElementHasTheSameBitsWhereverItLies) {
  constexpr std::size_t kCount = 10'000;  // more than two blocks and a tail
  std::mt19937 generator(7);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> ranks(5, std::vector<float>(kCount));
  for (auto& values : ranks) {
    for (float& value : values) value = normal(generator);
  }
  const std::vector<float> whole = reduced(ranks, DType::float32, ReduceOp::average);
  for (std::size_t i = 0; i < kCount; ++i) {
    float sum = ranks[0][i];
    for (std::size_t rank = 1; rank < ranks.size(); ++rank) sum += ranks[rank][i];
    ASSERT_EQ(whole[i], sum * (1.0F / 5.0F)) << i;
  }
  // The same by pieces at odd byte addresses, into all sources at once.
  std::vector<std::vector<std::byte>> shifted(ranks.size(), std::vector<std::byte>(kCount * sizeof(float) + 1));
  for (std::size_t begin = 0; begin < kCount; begin += 777) {
    const std::size_t count = std::min<std::size_t>(777, kCount - begin);
    std::vector<const std::byte*> sources;
    std::vector<std::byte*> targets;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      std::byte* const place = shifted[rank].data() + 1 + begin * sizeof(float);
      std::memcpy(place, &ranks[rank][begin], count * sizeof(float));
      sources.push_back(place);
      targets.push_back(place);
    }
    reduce(sources, targets, count, DType::float32, ReduceOp::average);
  }
  for (const auto& bytes : shifted) EXPECT_EQ(std::memcmp(bytes.data() + 1, whole.data(), kCount * sizeof(float)), 0);
}

TEST(ReductionTest, RefusesOtherTypesAndAveragesOfIntegers) {
  EXPECT_NO_THROW(require_reducible(DType::float64, ReduceOp::average));
  EXPECT_NO_THROW(require_reducible(DType::int64, ReduceOp::max));
  EXPECT_THROW(require_reducible(DType::int32, ReduceOp::average), std::logic_error);
  EXPECT_THROW(require_reducible(DType::bfloat16, ReduceOp::sum), std::logic_error);
}

}  // namespace
}  // namespace lockstep::mpi
