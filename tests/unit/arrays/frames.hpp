// SPDX-License-Identifier: BSD-3-Clause
// Streams of LZ4 and zstd that hold their bytes as they are, and the blocks of the filter bitshuffle with them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::arrays::frames {

using ByteList = std::vector<std::byte>;

inline void append(ByteList& bytes, std::uint64_t number, int count, bool is_big_endian) {
  for (int i = 0; i < count; ++i) {
    const int shift = 8 * (is_big_endian ? count - 1 - i : i);
    bytes.push_back(static_cast<std::byte>(number >> shift));
  }
}

inline void append(ByteList& bytes, std::span<const std::byte> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

/// A block of LZ4: one sequence that has only literals.
inline ByteList lz4_block(std::span<const std::byte> plain) {
  ByteList bytes;
  bytes.push_back(static_cast<std::byte>(std::min<std::size_t>(plain.size(), 15) << 4));
  if (plain.size() >= 15) {
    std::size_t rest = plain.size() - 15;
    for (; rest >= 255; rest -= 255) bytes.push_back(std::byte{255});
    bytes.push_back(static_cast<std::byte>(rest));
  }
  append(bytes, plain);
  return bytes;
}

/// A frame of zstd: a single segment of four size bytes, with one raw block.
inline ByteList zstd_frame(std::span<const std::byte> plain) {
  ByteList bytes;
  append(bytes, 0xFD2FB528, 4, false);
  bytes.push_back(std::byte{0xA0});
  append(bytes, plain.size(), 4, false);
  append(bytes, plain.size() << 3 | 1, 3, false);
  append(bytes, plain);
  return bytes;
}

/// Blocks of bitshuffle, of which the bits are already shuffled.
/// @param compression  2 = LZ4, 3 = zstd
inline ByteList block_stream(std::span<const std::byte> shuffled, std::size_t block_bytes, unsigned compression,
                             std::span<const std::byte> rest = {}) {
  ByteList bytes;
  append(bytes, shuffled.size() + rest.size(), 8, true);
  append(bytes, block_bytes, 4, true);
  while (!shuffled.empty()) {
    const auto block = shuffled.first(std::min(block_bytes, shuffled.size()));
    const ByteList packed = compression == 2 ? lz4_block(block) : zstd_frame(block);
    append(bytes, packed.size(), 4, true);
    append(bytes, packed);
    shuffled = shuffled.subspan(block.size());
  }
  append(bytes, rest);
  return bytes;
}

}  // namespace lockstep::arrays::frames
