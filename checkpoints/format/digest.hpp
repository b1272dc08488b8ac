// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep::checkpoints {

struct Digest128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const Digest128&) const = default;
};

/// XXH3 of 64 and 128 bits, seed 0. They find accidents, not attackers.
std::uint64_t digest64(std::span<const std::byte> bytes);
Digest128 digest128(std::span<const std::byte> bytes);

/// The digest of an array, from the 64-bit digests of its pieces: of each MiB from its first byte on.
Digest128 digest_of_pieces(std::span<const std::uint64_t> digests);
inline constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

/// 32 hexadecimal digits, the high half first.
std::string hex_of(const Digest128& digest);

}  // namespace lockstep::checkpoints
