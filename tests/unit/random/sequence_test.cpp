// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/random/random.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace lockstep::random {
namespace sequence_test {

TEST(BitsTest, EveryArgumentCounts) {
  std::set<std::uint64_t> seen;
  std::size_t drawn = 0;
  for (const std::uint64_t seed : {0ULL, 1ULL, 1ULL << 32, ~0ULL}) {
    for (const Stream stream : {Stream::initialization, Stream::order, Stream::digits, Stream::forward, Stream::user}) {
      for (const std::uint64_t a : {0ULL, 1ULL, 1ULL << 32}) {
        for (const std::uint64_t b : {0ULL, 1ULL, 1ULL << 32}) {
          for (const std::uint64_t i : {0ULL, 1ULL, 2ULL, 1ULL << 33}) {
            seen.insert(bits(seed, stream, a, b, i));
            ++drawn;
          }
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), drawn);
}

// Checkpoints and recorded runs rest on these values; they were computed once from the definition in terms of Philox.
TEST(BitsTest, FollowsItsDefinition) {
  const auto first = philox({7, 0, 9, 1}, {5, 0});  // a = 7, b = 2^32 + 9, seed = 5
  const auto block = philox({1, 0, first[2], first[3] ^ 3U}, {first[0], first[1]});
  const std::uint64_t b = (1ULL << 32) + 9;
  EXPECT_EQ(bits(5, Stream::digits, 7, b, 2), std::uint64_t{block[1]} << 32 | block[0]);
  EXPECT_EQ(bits(5, Stream::digits, 7, b, 3), std::uint64_t{block[3]} << 32 | block[2]);
}

TEST(SequenceTest, NumberIIsBitsOfI) {
  Sequence sequence(3, Stream::user, 4, 5);
  for (std::uint64_t i = 0; i < 9; ++i) EXPECT_EQ(sequence.next_bits(), bits(3, Stream::user, 4, 5, i));
  EXPECT_EQ(sequence.at(2), bits(3, Stream::user, 4, 5, 2));
  EXPECT_EQ(sequence.next_bits(), bits(3, Stream::user, 4, 5, 9));
}

// The moments of 100000 draws; the tolerances are five standard errors.
TEST(SequenceTest, UniformAndNormalHaveTheirMoments) {
  constexpr int kDraws = 100000;
  Sequence sequence(1, Stream::user, 0);
  double uniform_sum = 0;
  double uniform_squares = 0;
  double normal_sum = 0;
  double normal_squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double uniform = sequence.uniform();
    ASSERT_GE(uniform, 0.0);
    ASSERT_LT(uniform, 1.0);
    uniform_sum += uniform;
    uniform_squares += uniform * uniform;
    const double normal = sequence.normal();
    ASSERT_TRUE(std::isfinite(normal));
    normal_sum += normal;
    normal_squares += normal * normal;
  }
  EXPECT_NEAR(uniform_sum / kDraws, 0.5, 5 * std::sqrt(1.0 / 12 / kDraws));
  EXPECT_NEAR(uniform_squares / kDraws, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / kDraws));
  EXPECT_NEAR(normal_sum / kDraws, 0.0, 5 * std::sqrt(1.0 / kDraws));
  EXPECT_NEAR(normal_squares / kDraws, 1.0, 5 * std::sqrt(2.0 / kDraws));
}

TEST(SequenceTest, UniformStaysInItsRange) {
  Sequence sequence(1, Stream::user, 1);
  double lowest = 5;
  double highest = -3;
  for (int i = 0; i < 1000; ++i) {
    const double value = sequence.uniform(-3, 5);
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  EXPECT_GE(lowest, -3);
  EXPECT_LT(lowest, -2.9);
  EXPECT_GT(highest, 4.9);
  EXPECT_LT(highest, 5);
}

TEST(SequenceTest, BelowIsEvenAndBounded) {
  Sequence sequence(1, Stream::user, 2);
  EXPECT_EQ(sequence.below(1), 0U);
  std::array<int, 3> counts{};
  for (int i = 0; i < 30000; ++i) ++counts.at(sequence.below(3));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 5 * std::sqrt(30000 * 2.0 / 9));  // five standard deviations
  // Two thirds of 2^64: `value % bound` without drawing again would give the lower half twice as often as the upper.
  const std::uint64_t bound = 0xAAAAAAAAAAAAAAAA;
  int lower_half = 0;
  for (int i = 0; i < 10000; ++i) {
    const std::uint64_t value = sequence.below(bound);
    ASSERT_LT(value, bound);
    lower_half += value < bound / 2 ? 1 : 0;
  }
  EXPECT_NEAR(lower_half, 5000, 5 * std::sqrt(10000 / 4.0));
}

}  // namespace sequence_test
}  // namespace lockstep::random
