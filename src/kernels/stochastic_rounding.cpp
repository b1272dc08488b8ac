// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/stochastic_rounding.hpp"

#include <bit>
#include <cstring>

#include "core/numbers/at_level.hpp"

namespace lockstep::kernels {

namespace {

constexpr std::uint32_t kExponent = 0x7F800000U;

/// A hash of 32 bits, without collisions. Source: the finalizer of MurmurHash3, Austin Appleby, public domain.
inline std::uint32_t mixed(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85EBCA6BU;
  x = (x ^ (x >> 13)) * 0xC2B2AE35U;
  return x ^ (x >> 16);
}

LOCKSTEP_INLINE void round_elements(const float* from, std::byte* target, std::int64_t count, std::uint32_t begin,
                                    RoundingKey key) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t position = begin + static_cast<std::uint32_t>(i);
    const std::uint32_t random = mixed(mixed(position ^ key.first) + key.second) >> 16;
    const auto bits = std::bit_cast<std::uint32_t>(from[i]);
    const bool is_finite = (bits & kExponent) != kExponent;
    const std::uint32_t is_nan = (bits & ~0x80000000U) > kExponent ? 0x40U : 0;
    const auto half = static_cast<std::uint16_t>(is_finite ? (bits + random) >> 16 : (bits >> 16) | is_nan);
    std::memcpy(target + i * 2, &half, sizeof half);
  }
}

}  // namespace

void round_stochastically(const float* from, std::byte* target, std::int64_t count, std::int64_t begin,
                          RoundingKey key) {
  at_level<round_elements>(from, target, count, static_cast<std::uint32_t>(begin), key);
}

}  // namespace lockstep::kernels
