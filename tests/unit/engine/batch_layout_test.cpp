// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include "engine/settings/train_settings.hpp"

namespace lockstep::engine {
namespace batch_layout_test {

BatchSettings settings_of(std::int64_t global_batch_size, std::int64_t micro_batch, std::int64_t lanes = 0) {
  return {.global_batch_size = {global_batch_size, "train.global_batch_size (test)"},
          .micro_batch = {micro_batch, "train.micro_batch (test)"},
          .lanes = {lanes, "train.lanes (test)"}};
}

/// The positions of all forwards of all ranks, in their order.
std::vector<std::int64_t> positions(const BatchSettings& settings, int world_size) {
  std::vector<std::int64_t> all;
  for (int rank = 0; rank < world_size; ++rank) {
    const BatchLayout layout = layout_of(settings, rank, world_size);
    for (std::int64_t part = 0; part < layout.micro_batches; ++part) {
      const data::Share share = layout.positions_of(part);
      EXPECT_GE(share.count, 1);
      EXPECT_LE(share.count, layout.micro_batch_size);
      for (std::int64_t i = 0; i < share.count; ++i) all.push_back(share.begin + i);
    }
  }
  return all;
}

TEST(BatchLayoutTest, EveryPositionBelongsToOneForward) {
  for (const auto& settings : {settings_of(13, 0), settings_of(13, 2), settings_of(12, 5), settings_of(12, 0, 6)}) {
    for (int world_size = 1; world_size <= 5; ++world_size) {
      std::vector<std::int64_t> expected(static_cast<std::size_t>(settings.global_batch_size.value));
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<std::int64_t>(i);
      EXPECT_EQ(positions(settings, world_size), expected) << world_size;
    }
  }
}

TEST(BatchLayoutTest, AMicroBatchIsTheShareOfTheRankUnlessItIsLimited) {
  const BatchLayout whole = layout_of(settings_of(13, 0), 1, 2);
  EXPECT_EQ(whole.micro_batches, 1);
  EXPECT_EQ(whole.micro_batch_size, 6);
  const BatchLayout limited = layout_of(settings_of(13, 4), 1, 2);
  EXPECT_EQ(limited.micro_batches, 2);
  EXPECT_EQ(limited.positions_of(0).count, 4);
  EXPECT_EQ(limited.positions_of(1).count, 2);
  EXPECT_EQ(limited.positions_of(1).begin, 11);
}

// Ranks with 5, 4 and 4 samples: at most 4 of them are one pass more for the first rank.
TEST(BatchLayoutTest, RanksHaveEqualNumbersOfPassesIfTheyCommunicateInThem) {
  const BatchSettings settings = settings_of(13, 4);
  EXPECT_EQ(layout_of(settings, 0, 3).micro_batches, 2);
  EXPECT_EQ(layout_of(settings, 2, 3).micro_batches, 1);
  const BatchLayout last = layout_of(settings, 2, 3, "a test");
  EXPECT_EQ(last.micro_batches, 2);
  EXPECT_EQ(last.positions_of(0).count, 3);
  EXPECT_EQ(last.positions_of(1).count, 1);
  EXPECT_EQ(last.positions_of(1).begin, 12);
}

TEST(BatchLayoutTest, EqualNumbersOfPassesArePossibleOrRefused) {
  for (int world_size = 1; world_size <= 8; ++world_size) {
    for (std::int64_t global_batch = world_size; global_batch <= 41; ++global_batch) {
      for (std::int64_t micro_batch = 0; micro_batch <= global_batch + 1; ++micro_batch) {
        const BatchSettings settings = settings_of(global_batch, micro_batch);
        const bool are_possible = micro_batch != 1 || global_batch % world_size == 0;
        std::int64_t end = 0;
        for (int rank = 0; rank < world_size; ++rank) {
          if (!are_possible) {
            EXPECT_THROW(layout_of(settings, rank, world_size, "a test"), ConfigError);
            continue;
          }
          const BatchLayout layout = layout_of(settings, rank, world_size, "a test");
          ASSERT_EQ(layout.micro_batches, layout_of(settings, 0, world_size, "a test").micro_batches);
          for (std::int64_t part = 0; part < layout.micro_batches; ++part) {
            const data::Share positions = layout.positions_of(part);
            ASSERT_EQ(positions.begin, end);
            ASSERT_GE(positions.count, 1);
            if (micro_batch > 0) {
              ASSERT_LE(positions.count, micro_batch);
            }
            end += positions.count;
          }
        }
        if (are_possible) {
          ASSERT_EQ(end, global_batch);
        }
      }
    }
  }
}

TEST(BatchLayoutTest, ALaneMayBeAsLargeAsAMicroBatch) {
  for (const std::int64_t micro_batch : {2, 5}) {
    EXPECT_EQ(layout_of(settings_of(12, micro_batch, 6), 1, 2).micro_batch_size, 2);
  }
}

TEST(BatchLayoutTest, LanesAreForwardsOfOneSize) {
  const BatchLayout last = layout_of(settings_of(12, 0, 6), 3, 4);
  EXPECT_EQ(last.lanes, 6);
  EXPECT_EQ(last.first_lane + last.micro_batches, 6);
  EXPECT_EQ(last.micro_batch_size, 2);
}

std::string refusal(const BatchSettings& settings, int world_size) {
  try {
    layout_of(settings, 0, world_size);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(BatchLayoutTest, WhatDoesNotFitCitesItsKey) {
  EXPECT_EQ(refusal(settings_of(3, 0), 4), "train.global_batch_size (test): 3 samples are not enough for 4 ranks");
  EXPECT_TRUE(refusal(settings_of(12, 0, 5), 2).starts_with("train.lanes (test): 12 samples"));
  EXPECT_EQ(refusal(settings_of(12, 0, 3), 4), "train.lanes (test): 3 lanes are not enough for 4 ranks");
  EXPECT_EQ(refusal(settings_of(12, 1, 6), 2),
            "train.micro_batch (test): a lane is one forward pass of 2 samples; raise train.lanes for smaller ones");
  EXPECT_EQ(refusal(settings_of(4, 0), 4), "");
}

}  // namespace batch_layout_test
}  // namespace lockstep::engine
