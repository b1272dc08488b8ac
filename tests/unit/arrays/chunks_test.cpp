// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/chunks.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "arrays/chunk_filters.hpp"
#include "arrays/decompressors.hpp"
#include "core/system/in_threads.hpp"
#include "frames.hpp"

namespace lockstep::arrays {
namespace chunks_test {

using namespace frames;

ByteList bytes_from(const std::vector<int>& numbers) {
  ByteList bytes;
  for (const int number : numbers) bytes.push_back(static_cast<std::byte>(number));
  return bytes;
}

ByteList deflated(const ByteList& bytes) {
  uLongf size = compressBound(bytes.size());
  ByteList packed(size);
  compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(),
            4);
  packed.resize(size);
  return packed;
}

const SetFilter kShuffle{.number = H5Z_FILTER_SHUFFLE, .values = {3}};
const SetFilter kDeflate{.number = H5Z_FILTER_DEFLATE, .values = {4}};
const SetFilter kChecksum{.number = H5Z_FILTER_FLETCHER32, .values = {}};

TEST(ChunkFiltersTest, BytesAfterTheLastElementAreNotShuffled) {
  const ByteList stored = bytes_from({1, 4, 2, 5, 3, 6, 7, 8});  // elements of three bytes, and two bytes more
  EXPECT_EQ(undo_filters({kShuffle}, 0, stored, 8), bytes_from({1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(ChunkFiltersTest, SkippedFiltersAreNotUndone) {
  const ByteList shuffled = bytes_from({1, 4, 2, 5, 3, 6}), plain = bytes_from({1, 2, 3, 4, 5, 6});
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
  const ByteList large(10000, std::byte{0xFF});  // sums of 0xFFFF stay 0xFFFF
  ByteList stored = large;
  stored.insert(stored.end(), 4, std::byte{0xFF});
  EXPECT_EQ(undo_filters({kChecksum}, 0, stored, large.size()), large);
}

TEST(ChunkFiltersTest, OtherSizesAreDamage) {
  const ByteList packed = deflated(bytes_from({1, 2, 3, 4}));
  EXPECT_EQ(undo_filters({kDeflate}, 0, packed, 4), bytes_from({1, 2, 3, 4}));
  EXPECT_THROW(undo_filters({kDeflate}, 0, packed, 3), DataError);
  EXPECT_THROW(undo_filters({kDeflate}, 0, packed, 5), DataError);
  EXPECT_THROW(undo_filters({kDeflate}, 0, packed, std::size_t{1} << 40), DataError);  // nothing is allocated for it
  EXPECT_THROW(undo_filters({}, 0, packed, packed.size() + 1), DataError);
  EXPECT_THROW(undo_filters({kDeflate}, 0, ByteList(packed.begin(), packed.end() - 1), 4), DataError);
}

TEST(ChunkFiltersTest, WhatCanBeUndone) {
  const SetFilter szip{.number = H5Z_FILTER_SZIP, .values = {}};
  EXPECT_TRUE(can_undo({}));
  EXPECT_TRUE(can_undo({kShuffle, kDeflate, kChecksum}));
  EXPECT_FALSE(can_undo({szip}));
  EXPECT_FALSE(can_undo({kDeflate, kDeflate}));
}

// --- damage ---

/// A pipeline of filters and a chunk that it unpacks.
struct PackedChunk {
  std::string name;
  std::vector<SetFilter> filters;
  ByteList stored;
  std::size_t bytes = 0;
};

std::vector<PackedChunk> packed_chunks() {
  ByteList plain;
  for (int i = 0; i < 512; ++i) plain.push_back(static_cast<std::byte>(i * i / 100));
  const SetFilter shuffle{.number = H5Z_FILTER_SHUFFLE, .values = {4}};
  const SetFilter lzf{.number = kLzf, .values = {4, 261, 512}};
  const SetFilter zstd{.number = kZstd, .values = {3}};
  ByteList literals;
  for (std::size_t i = 0; i < plain.size(); i += 32) {
    literals.push_back(std::byte{31});
    literals.insert(literals.end(), plain.begin() + static_cast<std::ptrdiff_t>(i),
                    plain.begin() + static_cast<std::ptrdiff_t>(i) + 32);
  }
  ByteList with_sum = deflated(plain);
  with_sum.insert(with_sum.end(), 4, std::byte{0});
  std::vector<PackedChunk> chunks = {{"plain", {}, plain, 512},
                                     {"deflate", {shuffle, kDeflate}, deflated(plain), 512},
                                     {"fletcher32", {kDeflate, kChecksum}, with_sum, 512},
                                     {"lzf", {shuffle, lzf}, literals, 512},
                                     {"bitshuffle", {{kBitshuffle, {0, 4, 4, 32}}}, plain, 512}};
  if (!has_lz4_and_zstd()) return chunks;
  chunks.push_back({"zstd", {shuffle, zstd}, zstd_frame(plain), 512});
  for (const unsigned compression : {2U, 3U}) {
    const SetFilter filter{.number = kBitshuffle, .values = {0, 4, 4, 32, compression}};
    chunks.push_back(
        {"bitshuffle " + std::to_string(compression), {filter}, block_stream(plain, 128, compression), 512});
  }
  return chunks;
}

/// Changes bytes, cuts or extends, with numbers that depend on the seed only.
void damage(ByteList& bytes, std::mt19937& random) {
  const auto below = [&random](std::size_t limit) { return limit == 0 ? 0 : random() % limit; };
  const std::size_t changes = below(4);
  for (std::size_t i = 0; i < changes && !bytes.empty(); ++i) {
    const std::size_t place = below(3) == 0 ? below(std::min<std::size_t>(bytes.size(), 16)) : below(bytes.size());
    bytes[place] = static_cast<std::byte>(below(4) == 0 ? 255 : random());
  }
  if (below(4) == 0) bytes.resize(below(bytes.size() + 1));
  if (below(8) == 0) bytes.resize(bytes.size() + below(40), std::byte{1});
}

/// Random damage gives an error, or a chunk of the right size.
TEST(ChunkFiltersTest, DamagedChunks) {
  for (const PackedChunk& chunk : packed_chunks()) {
    SCOPED_TRACE(chunk.name);
    ASSERT_TRUE(can_undo(chunk.filters));
    if (chunk.name != "fletcher32") {
      EXPECT_EQ(undo_filters(chunk.filters, 0, chunk.stored, chunk.bytes).size(), chunk.bytes);
    }
    std::mt19937 random(7);
    std::size_t errors = 0;
    for (int round = 0; round < 4000; ++round) {
      std::vector<SetFilter> filters = chunk.filters;
      if (round % 8 == 0) {  // the parameters are damaged, too
        for (SetFilter& filter : filters) {
          if (!filter.values.empty())
            filter.values[random() % filter.values.size()] = static_cast<unsigned>(random() >> random() % 32);
        }
        if (!can_undo(filters)) continue;
      }
      ByteList stored = chunk.stored;
      damage(stored, random);
      const std::size_t bytes = round % 16 == 1 ? std::size_t{random()} << 4 : chunk.bytes;
      const auto skipped = static_cast<std::uint32_t>(round % 32 == 2 ? random() : 0);
      try {
        EXPECT_EQ(undo_filters(filters, skipped, stored, bytes).size(), bytes);
      } catch (const DataError&) {
        ++errors;
      }
    }
    EXPECT_GT(errors, 300U);
  }
}

ChunkKey key_of(std::uint64_t file, std::int64_t first) { return {.file = file, .array = "a", .first = {first}}; }

Chunk chunk_of(std::size_t bytes) { return std::make_shared<const ByteList>(bytes); }

/// Whether a chunk is in the cache. If not, it is put there with this size.
bool has(ChunkCache& cache, const ChunkKey& key, std::size_t bytes) {
  bool is_there = true;
  const Chunk chunk = cache.get(key, [&] {
    is_there = false;
    return chunk_of(bytes);
  });
  EXPECT_EQ(chunk->size(), bytes);
  return is_there;
}

TEST(ChunkCacheTest, TheLeastRecentlyUsedChunkGoes) {
  ChunkCache cache;
  cache.set_limit(10);
  EXPECT_FALSE(has(cache, key_of(1, 0), 4));
  EXPECT_FALSE(has(cache, key_of(1, 1), 4));
  EXPECT_TRUE(has(cache, key_of(1, 0), 4));
  EXPECT_FALSE(has(cache, key_of(1, 2), 4));
  EXPECT_TRUE(has(cache, key_of(1, 0), 4));
  EXPECT_FALSE(has(cache, key_of(1, 1), 4));
  EXPECT_FALSE(has(cache, key_of(1, 3), 11));
  EXPECT_FALSE(has(cache, key_of(1, 3), 11));  // too large
  EXPECT_TRUE(has(cache, key_of(1, 1), 4));
  EXPECT_FALSE(has(cache, key_of(2, 0), 2));
  cache.forget(1);
  EXPECT_TRUE(has(cache, key_of(2, 0), 2));
  EXPECT_FALSE(has(cache, key_of(1, 1), 4));
  EXPECT_EQ(cache.use().unpacked, 4U + 4 + 4 + 4 + 11 + 11 + 2 + 4);
}

TEST(ChunkCacheTest, ProcessesOfAHostDivideTheLimit) {
  ChunkCache cache;
  cache.set_limit(10);
  EXPECT_FALSE(has(cache, key_of(1, 0), 4));
  EXPECT_FALSE(has(cache, key_of(1, 1), 4));
  cache.set_sharers(2);
  EXPECT_TRUE(has(cache, key_of(1, 1), 4));
  EXPECT_FALSE(has(cache, key_of(1, 0), 4));
  EXPECT_FALSE(has(cache, key_of(1, 1), 4));
}

TEST(ChunkCacheTest, AChunkThatWasNeverWrittenIsNotKept) {
  ChunkCache cache;
  EXPECT_EQ(cache.get(key_of(1, 0), [] { return Chunk(); }), nullptr);
  EXPECT_FALSE(has(cache, key_of(1, 0), 4));
}

/// Each thread waits until all of them are in get(), or until it would be the second one in make().
TEST(ChunkCacheTest, AChunkIsMadeByOneThreadOnly) {
  constexpr int kThreads = 4;
  for (const bool fails : {false, true}) {
    ChunkCache cache;
    std::atomic<int> entered = 0, made = 0, errors = 0;
    in_threads(kThreads, [&](int) {
      ++entered;
      try {
        const Chunk chunk = cache.get(key_of(1, 0), [&] {
          ++made;
          while (entered < kThreads) std::this_thread::yield();
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          if (fails) throw DataError("damaged");
          return chunk_of(4);
        });
        EXPECT_EQ(chunk->size(), 4U);
      } catch (const DataError&) {
        ++errors;
      }
    });
    EXPECT_EQ(errors, fails ? kThreads : 0);
    EXPECT_TRUE(fails || made == 1) << made;
    EXPECT_EQ(has(cache, key_of(1, 0), 4), !fails);
  }
}

/// Element [y, x] of an array of 5 x 7 is 10 y + x; the chunk that begins at [2, 3] was never written.
TEST(ReadChunksTest, EveryPart) {
  const ChunkedArray array = {.shape = {5, 7}, .chunk = {2, 3}, .fill = bytes_from({99})};
  const auto get = [&](const std::vector<std::int64_t>& first) -> Chunk {
    if (first == std::vector<std::int64_t>{2, 3}) return nullptr;
    ByteList bytes;
    for (std::int64_t y = first[0]; y < first[0] + 2; ++y) {
      for (std::int64_t x = first[1]; x < first[1] + 3; ++x) bytes.push_back(static_cast<std::byte>(10 * y + x));
    }
    return std::make_shared<const ByteList>(bytes);
  };
  const auto value = [](std::int64_t y, std::int64_t x) {
    const bool is_missing = y >= 2 && y < 4 && x >= 3 && x < 6;
    return static_cast<std::byte>(is_missing ? 99 : 10 * y + x);
  };
  for (std::int64_t start = 0; start < 4; ++start) {
    for (std::int64_t step = 1; step <= 5; ++step) {
      const Slab slab = {{start, start}, {(4 - start) / step + 1, (6 - start) / step + 1}, {step, step}};
      ByteList actual(static_cast<std::size_t>(size_of(slab))), expected;
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
