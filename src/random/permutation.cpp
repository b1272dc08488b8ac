// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/random/random.hpp>

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

namespace lockstep::random {

namespace {

constexpr std::uint64_t kSwapRounds = 8;
constexpr unsigned kMinHalfBits = 4;  // fewer bits would leave some orders of a tiny set more likely than others

// The finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014): every input bit flips every output bit half the
// time.
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31);
}

}  // namespace

Permutation::Permutation(std::uint64_t size, std::uint64_t key) : size_(size), key_(key) {
  if (size == 0) throw std::invalid_argument("a permutation needs at least one element");
  const auto width = static_cast<unsigned>(std::bit_width(size - 1));
  half_bits_ = std::max(kMinHalfBits, (width + 1) / 2);
}

std::uint64_t Permutation::operator()(std::uint64_t position) const {
  if (position >= size_) {
    throw std::out_of_range("position " + std::to_string(position) + " of a permutation of " + std::to_string(size_));
  }
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t value = position;
  do {
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 1; round <= kSwapRounds; ++round) {
      const std::uint64_t round_key = mix(key_ + round * 0x9E3779B97F4A7C15U);
      const std::uint64_t scrambled = (left ^ mix(round_key ^ right)) & mask;
      left = right;
      right = scrambled;
    }
    value = left << half_bits_ | right;
  } while (value >= size_);  // walk the cycle back into range: still a bijection
  return value;
}

}  // namespace lockstep::random
