// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/bitshuffle.hpp"

#include <gtest/gtest.h>

#include "arrays/decompressors.hpp"
#include "frames.hpp"

namespace lockstep::arrays {
namespace bitshuffle_test {

using namespace frames;

ByteList numbers(std::size_t bytes) {
  ByteList result;
  for (std::size_t i = 0; i < bytes; ++i) result.push_back(static_cast<std::byte>(i * i + i / 3));
  return result;
}

/// Bit `b` of byte `k` of element `i` becomes bit i % 8 of byte i / 8 of row 8 k + b.
ByteList split_bits(std::span<const std::byte> elements, std::size_t bytes) {
  const std::size_t count = elements.size() / bytes;
  ByteList result(elements.size());
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t bit = 0; bit < 8 * bytes; ++bit) {
      const bool is_set = (std::to_integer<unsigned>(elements[i * bytes + bit / 8]) >> bit % 8 & 1) != 0;
      if (is_set) result[bit * (count / 8) + i / 8] |= static_cast<std::byte>(1U << i % 8);
    }
  }
  return result;
}

/// Splits the bits of each block; up to seven elements stay as they are, after the blocks.
ByteList shuffled_blocks(std::span<const std::byte> plain, std::size_t bytes, std::size_t block) {
  ByteList result;
  std::size_t elements = plain.size() / bytes / 8 * 8;
  while (elements > 0) {
    const std::size_t count = std::min(elements, block);
    append(result, split_bits(plain.first(count * bytes), bytes));
    plain = plain.subspan(count * bytes);
    elements -= count;
  }
  return result;
}

TEST(BitshuffleTest, BitsBecomeElements) {
  for (const std::size_t bytes : {1U, 2U, 3U, 4U, 8U}) {
    const ByteList plain = numbers(bytes * 40);
    ByteList out(plain.size());
    join_bits(split_bits(plain, bytes), out, bytes);
    EXPECT_EQ(out, plain) << bytes;
  }
}

/// 45 elements: blocks of 16, 16 and 8, and five more. A block that bitshuffle chooses is larger than all of them.
TEST(BitshuffleTest, Blocks) {
  const ByteList plain = numbers(90);
  const ByteList rest(plain.end() - 10, plain.end());
  for (const std::size_t block : {std::size_t{16}, std::size_t{0}}) {
    const std::size_t used = block == 0 ? 4096 : block;
    const ByteList bits = shuffled_blocks(plain, 2, used);
    ByteList stored = bits, out(90);
    append(stored, rest);
    EXPECT_TRUE(undo_bitshuffle({.element_bytes = 2, .block = block}, stored, out));
    EXPECT_EQ(out, plain);
    EXPECT_FALSE(undo_bitshuffle({.element_bytes = 2, .block = 12}, stored, out));
    if (!has_lz4_and_zstd()) continue;
    for (const auto compression : {BlockCompression::lz4, BlockCompression::zstd}) {
      const ByteList packed = block_stream(bits, 2 * used, static_cast<unsigned>(compression), rest);
      const BitshuffleOptions options = {.element_bytes = 2, .compression = compression};
      EXPECT_EQ(decoded_bitshuffle_size(options, packed), 90U);
      std::ranges::fill(out, std::byte{0});
      EXPECT_TRUE(undo_bitshuffle(options, packed, out));
      EXPECT_EQ(out, plain);
      for (std::size_t size = 0; size < packed.size(); ++size) {
        EXPECT_FALSE(undo_bitshuffle(options, std::span(packed).first(size), out)) << size;
      }
      ByteList longer = packed;
      longer.push_back(std::byte{0});
      EXPECT_FALSE(undo_bitshuffle(options, longer, out));
    }
  }
}

TEST(BitshuffleTest, Options) {
  const std::vector<unsigned> lz4 = {0, 4, 2, 0, 2}, none = {0, 4, 2}, other = {0, 4, 2, 0, 1},
                              no_size = {0, 4, 0, 0, 2};
  EXPECT_EQ(bitshuffle_options(lz4)->compression, BlockCompression::lz4);
  EXPECT_EQ(bitshuffle_options(none)->compression, BlockCompression::none);
  EXPECT_EQ(bitshuffle_options(none)->element_bytes, 2U);
  EXPECT_FALSE(bitshuffle_options(other));
  EXPECT_FALSE(bitshuffle_options(no_size));
  EXPECT_FALSE(bitshuffle_options({}));
}

/// ByteList that promise much more than they can hold.
TEST(BitshuffleTest, PromisesAreNotBelieved) {
  ByteList packed;
  append(packed, std::uint64_t{1} << 40, 8, true);
  append(packed, 8192, 4, true);
  append(packed, 0, 4, true);
  EXPECT_FALSE(decoded_bitshuffle_size({.element_bytes = 2, .compression = BlockCompression::lz4}, packed));
}

}  // namespace bitshuffle_test
}  // namespace lockstep::arrays
