// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "parallel/store/ownership.hpp"
#include "parallel/store/tensor_collectives.hpp"

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
  EXPECT_EQ(units[0].slice(0), 8192);
  EXPECT_TRUE(are_even(units[0].borders));
  EXPECT_EQ(units[0].slots[0].offset, 0);
  EXPECT_EQ(units[0].slots[1].offset, 8192);
}

// One that fits before the border stays, on the next 64 bytes.
TEST(PlanUnitsTest, SmallParametersLieSideBySide) {
  const auto units = plan_units(specs({5, 3, 20}), {{0, 2}, {1}}, 3);
  ASSERT_EQ(units.size(), 2U);
  EXPECT_EQ(units[0].slice(2), 4096);
  EXPECT_EQ(units[0].slots[1].offset, 16);
  EXPECT_EQ(units[1].slots[0].parameter, 1U);
  EXPECT_EQ(units[1].count(), 3 * 4096);
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
    EXPECT_EQ(unit.slice(0) % optim::kPieceElements, 0);
    EXPECT_TRUE(are_even(unit.borders));
    std::vector<std::int64_t> next(counts.size(), 0);  // the element that nobody has yet
    for (int rank = 0; rank < ranks; ++rank) {
      const optim::FlatBlock block = block_of(unit, parameters, rank);
      EXPECT_EQ(block.count, unit.slice(rank));
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

// Dealt from the largest: 900 to rank 0, 500 to rank 1, 300 to rank 2, 200 to rank 2, 40 to rank 1 (500 = 300 + 200,
// the lower rank), 30 to rank 2, over both units. Offsets are multiples of 16 float32.
TEST(PlanOwnedUnitsTest, TheLargestParameterGoesToTheRankWithTheFewestBytes) {
  const auto units = plan_owned_units(specs({40, 900, 200, 500, 30, 300}), {{0, 1, 2}, {3, 4, 5}}, 3);
  ASSERT_EQ(units.size(), 2U);
  const auto offsets = [](const Unit& unit) {
    std::vector<std::pair<std::size_t, std::int64_t>> all;
    for (const Slot& slot : unit.slots) all.emplace_back(slot.parameter, slot.offset);
    return all;
  };
  using Offsets = std::vector<std::pair<std::size_t, std::int64_t>>;
  EXPECT_EQ(units[0].borders, (std::vector<std::int64_t>{0, 912, 960, 1168}));
  EXPECT_EQ(offsets(units[0]), (Offsets{{1, 0}, {0, 912}, {2, 960}}));
  EXPECT_EQ(units[1].borders, (std::vector<std::int64_t>{0, 0, 512, 848}));
  EXPECT_EQ(offsets(units[1]), (Offsets{{3, 0}, {4, 512}, {5, 544}}));
  EXPECT_FALSE(are_even(units[1].borders));
  EXPECT_EQ(units[1].owner_of(units[1].slots[0]), 1);
  EXPECT_EQ(units[1].owner_of(units[1].slots[2]), 2);
}

// Greedy assignment: no two ranks differ by more than the largest parameter.
TEST(PlanOwnedUnitsTest, EveryParameterHasOneOwnerAndRanksHaveSimilarSizes) {
  for (std::int64_t seed = 0; seed < 200; ++seed) {
    std::vector<std::int64_t> counts;
    for (std::int64_t i = 0; i < 2 + seed % 9; ++i) counts.push_back((seed * 7919 + i * i * 3571 + 1) % 30000);
    if (seed % 5 == 0) counts[0] = 0;
    const auto parameters = specs(counts);
    std::vector<std::vector<std::size_t>> members(2);
    for (std::size_t i = 0; i < counts.size(); ++i) members[i % 2].push_back(i);
    const int ranks = 1 + static_cast<int>(seed % 6);
    const auto units = plan_owned_units(parameters, members, ranks);
    std::vector<int> owners(counts.size());  // how many ranks have all of it
    std::vector<std::int64_t> owned(static_cast<std::size_t>(ranks));
    for (std::size_t u = 0; u < units.size(); ++u) {
      for (int rank = 0; rank < ranks; ++rank) {
        const optim::FlatBlock block = block_of(units[u], parameters, rank);
        for (std::size_t s = 0; s < block.segments.size(); ++s) {
          const optim::Segment& segment = block.segments[s];
          const Slot& slot = units[u].slots[s];
          if (segment.own_begin == segment.own_end) continue;
          EXPECT_EQ(segment.own_end - segment.own_begin, segment.count);
          EXPECT_EQ(segment.offset % 16, 0);
          EXPECT_GE(segment.offset, 0);
          EXPECT_LE(segment.offset + segment.count, block.count);
          EXPECT_EQ(units[u].owner_of(slot), rank);
          ++owners[slot.parameter];
          owned[static_cast<std::size_t>(rank)] += segment.count;
        }
      }
    }
    for (std::size_t i = 0; i < counts.size(); ++i) EXPECT_EQ(owners[i], counts[i] > 0 ? 1 : 0) << "seed " << seed;
    const auto [fewest, most] = std::minmax_element(owned.begin(), owned.end());
    EXPECT_LE(*most - *fewest, *std::max_element(counts.begin(), counts.end())) << "seed " << seed;
  }
}

}  // namespace shard_plan_test
}  // namespace lockstep::parallel
