// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/random/random.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <stdexcept>
#include <vector>

namespace lockstep::random {
namespace permutation_test {

std::vector<std::uint64_t> order(std::uint64_t size, std::uint64_t key) {
  const Permutation permutation(size, key);
  std::vector<std::uint64_t> values;
  for (std::uint64_t position = 0; position < size; ++position) values.push_back(permutation(position));
  return values;
}

bool is_bijection(std::uint64_t size, std::uint64_t key) {
  std::vector<bool> seen(size);
  for (const std::uint64_t value : order(size, key)) {
    if (value >= size || seen[value]) return false;
    seen[value] = true;
  }
  return true;
}

TEST(PermutationTest, IsABijectionOfEverySize) {
  for (std::uint64_t size = 1; size <= 300; ++size) {
    for (const std::uint64_t key : {0ULL, 1ULL, ~0ULL}) EXPECT_TRUE(is_bijection(size, key)) << size << " " << key;
  }
  for (const std::uint64_t size : {4095ULL, 4096ULL, 4097ULL, 60000ULL, 1003854ULL}) {
    EXPECT_TRUE(is_bijection(size, 7)) << size;
  }
}

TEST(PermutationTest, HugeSizesAreAddressed) {
  for (const std::uint64_t size : {(1ULL << 33) + 1, 1ULL << 62}) {
    const Permutation permutation(size, 1);
    std::set<std::uint64_t> values;
    for (std::uint64_t k = 0; k < 1000; ++k) values.insert(permutation(size / 1000 * k));
    EXPECT_EQ(values.size(), 1000U);
    EXPECT_LT(*values.rbegin(), size);
    EXPECT_GT(*values.rbegin(), size / 2);
  }
}

TEST(PermutationTest, AnotherKeyGivesAnotherOrder) {
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t key = 0; key < 200; ++key) orders.insert(order(100, key));
  EXPECT_EQ(orders.size(), 200U);
}

double chi_square(const std::map<std::uint64_t, int>& counts, double cells, double draws) {
  const double expected = draws / cells;
  double sum = (cells - static_cast<double>(counts.size())) * expected;  // contribution of the cells never hit
  for (const auto& [cell, count] : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

// Chi-square with n degrees of freedom has mean n and variance 2n: five standard deviations above is a failure.
double limit(double degrees) { return degrees + 5 * std::sqrt(2 * degrees); }

TEST(PermutationTest, WhereAnElementGoesIsEvenOverKeys) {
  constexpr std::uint64_t kKeys = 20000;
  for (const std::uint64_t size : {2ULL, 3ULL, 5ULL, 16ULL, 50ULL, 100ULL}) {
    for (const std::uint64_t position : {std::uint64_t{0}, size - 1}) {
      std::map<std::uint64_t, int> counts;
      for (std::uint64_t key = 0; key < kKeys; ++key) ++counts[Permutation(size, key)(position)];
      const auto cells = static_cast<double>(size);
      EXPECT_LT(chi_square(counts, cells, kKeys), limit(cells - 1)) << size << " " << position;
    }
  }
}

TEST(PermutationTest, NeighborsArePlacedIndependently) {
  constexpr std::uint64_t kKeys = 40000;
  constexpr std::uint64_t kSize = 20;
  std::map<std::uint64_t, int> counts;  // counts of ordered pairs of different elements
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    const Permutation permutation(kSize, key);
    ++counts[permutation(0) * kSize + permutation(1)];
  }
  constexpr double kPairs = kSize * (kSize - 1);
  EXPECT_LT(chi_square(counts, kPairs, kKeys), limit(kPairs - 1));
}

TEST(PermutationTest, EveryOrderOfATinySetIsEquallyLikely) {
  constexpr std::uint64_t kKeys = 24000;
  std::map<std::vector<std::uint64_t>, int> orders;
  for (std::uint64_t key = 0; key < kKeys; ++key) ++orders[order(4, key)];
  ASSERT_EQ(orders.size(), 24U);
  double sum = 0;
  for (const auto& [values, count] : orders) sum += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(sum, limit(23));
}

TEST(PermutationTest, RefusesWhatIsOutside) {
  EXPECT_THROW(Permutation(0, 1), std::invalid_argument);
  EXPECT_THROW(Permutation(3, 1)(3), std::out_of_range);
}

}  // namespace permutation_test
}  // namespace lockstep::random
