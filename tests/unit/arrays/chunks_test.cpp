// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/chunks.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>

#include "arrays/chunk_filters.hpp"

namespace lockstep::arrays {
namespace chunks_test {

using Bytes = std::vector<std::byte>;

Bytes bytes_from(const std::vector<int>& numbers) {
  Bytes bytes;
  for (const int number : numbers) bytes.push_back(static_cast<std::byte>(number));
  return bytes;
}

Bytes deflated(const Bytes& bytes) {
  uLongf size = compressBound(bytes.size());
  Bytes packed(size);
  compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(),
            4);
  packed.resize(size);
  return packed;
}

const SetFilter kShuffle{.number = H5Z_FILTER_SHUFFLE, .values = {3}};
const SetFilter kDeflate{.number = H5Z_FILTER_DEFLATE, .values = {4}};
const SetFilter kChecksum{.number = H5Z_FILTER_FLETCHER32, .values = {}};

TEST(ChunkFiltersTest, BytesAfterTheLastElementAreNotShuffled) {
  const Bytes stored = bytes_from({1, 4, 2, 5, 3, 6, 7, 8});  // elements of three bytes, and two bytes more
  EXPECT_EQ(undo_filters({kShuffle}, 0, stored, 8), bytes_from({1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(ChunkFiltersTest, SkippedFiltersAreNotUndone) {
  const Bytes shuffled = bytes_from({1, 4, 2, 5, 3, 6}), plain = bytes_from({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(undo_filters({kShuffle, kDeflate}, 0, deflated(shuffled), 6), plain);
  EXPECT_EQ(undo_filters({kShuffle, kDeflate}, 1, deflated(plain), 6), plain);
  EXPECT_EQ(undo_filters({kShuffle, kDeflate}, 2, shuffled, 6), plain);
  EXPECT_EQ(undo_filters({kShuffle, kDeflate}, 3, plain, 6), plain);
}

/// The words are 0x0102 and 0x0300: the sums are 0x0402, and 0x0102 + 0x0402 = 0x0504.
TEST(ChunkFiltersTest, Fletcher32) {
  EXPECT_EQ(undo_filters({kChecksum}, 0, bytes_from({1, 2, 3, 0x02, 0x04, 0x04, 0x05}), 3), bytes_from({1, 2, 3}));
  EXPECT_EQ(undo_filters({kChecksum}, 0, bytes_from({1, 2, 3, 0x04, 0x02, 0x05, 0x04}), 3), bytes_from({1, 2, 3}));
  EXPECT_THROW(undo_filters({kChecksum}, 0, bytes_from({1, 2, 4, 0x02, 0x04, 0x04, 0x05}), 3), DataError);
  EXPECT_THROW(undo_filters({kChecksum}, 0, bytes_from({1, 2}), 3), DataError);
  const Bytes large(10000, std::byte{0xFF});  // sums of 0xFFFF stay 0xFFFF
  Bytes stored = large;
  stored.insert(stored.end(), 4, std::byte{0xFF});
  EXPECT_EQ(undo_filters({kChecksum}, 0, stored, large.size()), large);
}

TEST(ChunkFiltersTest, OtherSizesAreDamage) {
  const Bytes packed = deflated(bytes_from({1, 2, 3, 4}));
  EXPECT_EQ(undo_filters({kDeflate}, 0, packed, 4), bytes_from({1, 2, 3, 4}));
  EXPECT_THROW(undo_filters({kDeflate}, 0, packed, 3), DataError);
  EXPECT_THROW(undo_filters({kDeflate}, 0, packed, 5), DataError);
  EXPECT_THROW(undo_filters({kDeflate}, 0, packed, std::size_t{1} << 40), DataError);  // nothing is allocated for it
  EXPECT_THROW(undo_filters({}, 0, packed, packed.size() + 1), DataError);
  EXPECT_THROW(undo_filters({kDeflate}, 0, Bytes(packed.begin(), packed.end() - 1), 4), DataError);
}

TEST(ChunkFiltersTest, WhatCanBeUndone) {
  const SetFilter szip{.number = H5Z_FILTER_SZIP, .values = {}};
  EXPECT_TRUE(can_undo({}));
  EXPECT_TRUE(can_undo({kShuffle, kDeflate, kChecksum}));
  EXPECT_FALSE(can_undo({szip}));
  EXPECT_FALSE(can_undo({kDeflate, kDeflate}));
}

ChunkKey key_of(std::uint64_t file, std::int64_t first) { return {.file = file, .array = "a", .first = {first}}; }

Chunk chunk_of(std::size_t bytes) { return std::make_shared<const Bytes>(bytes); }

TEST(ChunkCacheTest, TheLeastRecentlyUsedChunkGoes) {
  ChunkCache cache;
  cache.set_limit(10);
  cache.put(key_of(1, 0), chunk_of(4));
  cache.put(key_of(1, 1), chunk_of(4));
  EXPECT_NE(cache.find(key_of(1, 0)), nullptr);
  cache.put(key_of(1, 2), chunk_of(4));
  EXPECT_EQ(cache.find(key_of(1, 1)), nullptr);
  EXPECT_NE(cache.find(key_of(1, 0)), nullptr);
  cache.put(key_of(1, 3), chunk_of(11));  // too large
  EXPECT_EQ(cache.find(key_of(1, 3)), nullptr);
  cache.put(key_of(2, 0), chunk_of(2));
  cache.forget(1);
  EXPECT_EQ(cache.find(key_of(1, 0)), nullptr);
  EXPECT_NE(cache.find(key_of(2, 0)), nullptr);
  cache.set_limit(1);
  EXPECT_EQ(cache.find(key_of(2, 0)), nullptr);
}

/// Element [y, x] of an array of 5 x 7 is 10 y + x; the chunk that begins at [2, 3] was never written.
TEST(ReadChunksTest, EveryPart) {
  const ChunkedArray array = {.shape = {5, 7}, .chunk = {2, 3}, .fill = bytes_from({99})};
  const auto get = [&](const std::vector<std::int64_t>& first) -> Chunk {
    if (first == std::vector<std::int64_t>{2, 3}) return nullptr;
    Bytes bytes;
    for (std::int64_t y = first[0]; y < first[0] + 2; ++y) {
      for (std::int64_t x = first[1]; x < first[1] + 3; ++x) bytes.push_back(static_cast<std::byte>(10 * y + x));
    }
    return std::make_shared<const Bytes>(bytes);
  };
  const auto value = [](std::int64_t y, std::int64_t x) {
    const bool is_missing = y >= 2 && y < 4 && x >= 3 && x < 6;
    return static_cast<std::byte>(is_missing ? 99 : 10 * y + x);
  };
  for (std::int64_t start = 0; start < 4; ++start) {
    for (std::int64_t step = 1; step <= 5; ++step) {
      const Slab slab = {{start, start}, {(4 - start) / step + 1, (6 - start) / step + 1}, {step, step}};
      Bytes actual(static_cast<std::size_t>(size_of(slab))), expected;
      read_chunks(get, array, slab, actual);
      for (std::int64_t y = start; y < 5; y += step) {
        for (std::int64_t x = start; x < 7; x += step) expected.push_back(value(y, x));
      }
      EXPECT_EQ(actual, expected) << start << " " << step;
    }
  }
}

}  // namespace chunks_test
}  // namespace lockstep::arrays
