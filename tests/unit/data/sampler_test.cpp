// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/data/sampler.hpp>

#include <algorithm>
#include <numeric>
#include <set>
#include <stdexcept>

#include "files.hpp"

namespace lockstep::data {
namespace sampler_test {

using Indices = std::vector<std::int64_t>;

Indices global_batch(const Sampler& sampler, std::int64_t epoch, std::int64_t step, int world_size) {
  Indices joined;
  for (int rank = 0; rank < world_size; ++rank) {
    const Share share = share_of(sampler.global_batch_size(), rank, world_size);
    const Indices mine = sampler.indices(epoch, step, share);
    joined.insert(joined.end(), mine.begin(), mine.end());
  }
  return joined;
}

Indices whole_epoch(const Sampler& sampler, std::int64_t epoch) {
  Indices joined;
  for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
    const Indices batch = global_batch(sampler, epoch, step, 1);
    joined.insert(joined.end(), batch.begin(), batch.end());
  }
  return joined;
}

TEST(ShareTest, TheFirstRanksGetTheLargerShares) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> expected = {{0, 13}, {13, 13}, {26, 12}, {38, 12}};
  for (int rank = 0; rank < 4; ++rank) {
    const Share share = share_of(50, rank, 4);
    EXPECT_EQ(std::pair(share.begin, share.count), expected.at(static_cast<std::size_t>(rank)));
  }
}

TEST(ShareTest, SharesJoinWithoutGapOrOverlap) {
  for (std::int64_t total = 0; total < 40; ++total) {
    for (int world_size = 1; world_size <= 9; ++world_size) {
      std::int64_t next = 0;
      for (int rank = 0; rank < world_size; ++rank) {
        const Share share = share_of(total, rank, world_size);
        EXPECT_EQ(share.begin, next);
        EXPECT_TRUE(share.count == total / world_size || share.count == total / world_size + 1);
        next = share.begin + share.count;
      }
      EXPECT_EQ(next, total);
    }
  }
}

TEST(SamplerTest, ABatchDoesNotDependOnTheNumberOfRanks) {
  const Sampler sampler(1003, 50, 7);
  EXPECT_EQ(sampler.steps_per_epoch(), 20);
  for (const std::int64_t step : {0, 3, 19}) {
    const Indices alone = global_batch(sampler, 2, step, 1);
    EXPECT_EQ(alone.size(), 50U);
    for (int world_size = 2; world_size <= 4; ++world_size) {
      EXPECT_EQ(global_batch(sampler, 2, step, world_size), alone) << world_size;
    }
  }
}

TEST(SamplerTest, AnEpochTakesNoSampleTwice) {
  const Sampler sampler(1003, 50, 7);
  const Indices epoch = whole_epoch(sampler, 0);
  EXPECT_EQ(epoch.size(), 1000U);
  const std::set<std::int64_t> distinct(epoch.begin(), epoch.end());
  EXPECT_EQ(distinct.size(), 1000U);
  EXPECT_GE(*distinct.begin(), 0);
  EXPECT_LT(*distinct.rbegin(), 1003);
}

TEST(SamplerTest, TheOrderDependsOnSeedAndEpochAlone) {
  const Sampler sampler(1003, 50, 7);
  const Indices first = whole_epoch(sampler, 0);
  EXPECT_EQ(whole_epoch(Sampler(1003, 50, 7), 0), first);
  EXPECT_NE(whole_epoch(sampler, 1), first);
  EXPECT_NE(whole_epoch(Sampler(1003, 50, 8), 0), first);
  const Indices larger_batches = whole_epoch(Sampler(1003, 100, 7), 0);
  EXPECT_EQ(larger_batches, first);
}

TEST(SamplerTest, WithoutShuffleTheOrderIsThatOfTheDataSet) {
  Indices expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(whole_epoch(Sampler(1003, 50, 7, false), 5), expected);
}

TEST(SamplerTest, RefusesADataSetSmallerThanOneBatch) {
  EXPECT_EQ(sentence_of<ConfigError>([] { Sampler(47, 48, 0); }),
            "the training data have 47 samples, fewer than train.global_batch_size = 48; lower train.global_batch_size "
            "or use more data");
  EXPECT_EQ(Sampler(48, 48, 0).steps_per_epoch(), 1);
  EXPECT_THROW(Sampler(48, 0, 0), std::invalid_argument);
}

TEST(SamplerTest, RefusesWhatIsOutside) {
  const Sampler sampler(100, 10, 0);
  EXPECT_THROW(sampler.indices(0, 10, {0, 10}), std::out_of_range);
  EXPECT_THROW(sampler.indices(-1, 0, {0, 10}), std::out_of_range);
  EXPECT_THROW(sampler.indices(0, 0, {5, 6}), std::out_of_range);
  EXPECT_TRUE(sampler.indices(0, 0, {10, 0}).empty());
}

}  // namespace sampler_test
}  // namespace lockstep::data
