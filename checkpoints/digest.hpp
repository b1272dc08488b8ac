// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::checkpoints {

struct Digest128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const Digest128&) const = default;
};

/// XXH3 of 64 and 128 bits, seed 0. They find accidents, not attackers.
std::uint64_t digest64(std::span<const std::byte> bytes);
Digest128 digest128(std::span<const std::byte> bytes);

}  // namespace lockstep::checkpoints
