// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/sharding/shard_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace lockstep::parallel {
namespace shard_plan_test {

std::vector<ParameterSpec> specs(const std::vector<std::int64_t>& counts) {
  std::vector<ParameterSpec> all;
  for (const std::int64_t count : counts) {
    all.push_back({.name = "p", .dtype = DType::float32, .shape = {count}, .strides = {1}});
  }
  return all;
}

// Slots 0 and 4112: the second one's border with the next rank, at 8192, would not lie on a piece of it, so that it
// begins at 8192 itself.
TEST(PlanUnitsTest, BordersBetweenRanksLieOnPiecesOfAParameter) {
  const auto units = plan_units(specs({4100, 8000}), {{0, 1}}, 2);
  ASSERT_EQ(units.size(), 1U);
  EXPECT_EQ(units[0].slice, 8192);
  EXPECT_EQ(units[0].slots[0].offset, 0);
  EXPECT_EQ(units[0].slots[1].offset, 8192);
}

// One that fits before the border stays, on the next 64 bytes.
TEST(PlanUnitsTest, SmallParametersLieSideBySide) {
  const auto units = plan_units(specs({5, 3, 20}), {{0, 2}, {1}}, 3);
  ASSERT_EQ(units.size(), 2U);
  EXPECT_EQ(units[0].slice, 4096);
  EXPECT_EQ(units[0].slots[1].offset, 16);
  EXPECT_EQ(units[1].slots[0].parameter, 1U);
  EXPECT_EQ(units[1].count(3), 3 * 4096);
}

TEST(PlanUnitsTest, EveryElementHasOneOwnerWhateverTheNumberOfRanks) {
  for (std::int64_t seed = 0; seed < 200; ++seed) {
    std::vector<std::int64_t> counts;
    for (std::int64_t i = 0; i < 1 + seed % 7; ++i) counts.push_back((seed * 7919 + i * i * 3571 + 1) % 30000);
    const auto parameters = specs(counts);
    std::vector<std::size_t> members(counts.size());
    for (std::size_t i = 0; i < members.size(); ++i) members[i] = i;
    const int ranks = 1 + static_cast<int>(seed % 6);
    const Unit unit = plan_units(parameters, {members}, ranks).front();
    EXPECT_EQ(unit.slice % optim::kPieceElements, 0);
    std::vector<std::int64_t> next(counts.size(), 0);  // the element that nobody has yet
    for (int rank = 0; rank < ranks; ++rank) {
      const optim::Block block = block_of(unit, parameters, rank);
      EXPECT_EQ(block.count, unit.slice);
      for (std::size_t s = 0; s < counts.size(); ++s) {
        const optim::Segment& segment = block.segments[s];
        if (segment.own_begin == segment.own_end) continue;
        EXPECT_EQ(segment.own_begin, next[s]);
        EXPECT_EQ(segment.own_begin % optim::kPieceElements, 0);
        EXPECT_GE(segment.offset + segment.own_begin, 0);
        EXPECT_LE(segment.offset + segment.own_end, block.count);
        next[s] = segment.own_end;
      }
    }
    EXPECT_EQ(next, counts) << "seed " << seed;
  }
}

}  // namespace shard_plan_test
}  // namespace lockstep::parallel
