// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/random/random.hpp>

#include <cmath>
#include <limits>
#include <numbers>

#include "random/words.hpp"

namespace lockstep::random {

namespace {

std::uint64_t join(std::uint32_t low_word, std::uint32_t high_word) {
  return std::uint64_t{high_word} << 32 | low_word;
}

}  // namespace

// Philox twice, since (stream, a, b, i) are wider than one counter: a and b, scrambled under the seed, make the key and
// the upper half of the counter of the second call. For one key Philox is a bijection, so no (a, b) share a pair.
Sequence::Sequence(std::uint64_t seed, Stream stream, std::uint64_t a, std::uint64_t b, std::uint64_t first)
    : i_(first) {
  const auto scrambled = philox({low(a), high(a), low(b), high(b)}, {low(seed), high(seed)});
  key_ = {scrambled[0], scrambled[1]};
  upper_ = {scrambled[2], scrambled[3] ^ static_cast<std::uint32_t>(stream)};
}

std::uint64_t Sequence::at(std::uint64_t i) {
  const std::uint64_t block = i / 2;
  if (!has_words_ || block != block_) {
    words_ = philox({low(block), high(block), upper_[0], upper_[1]}, key_);
    block_ = block;
    has_words_ = true;
  }
  return i % 2 == 0 ? join(words_[0], words_[1]) : join(words_[2], words_[3]);
}

std::uint64_t Sequence::next_bits() { return at(i_++); }

double Sequence::uniform() { return static_cast<double>(next_bits() >> 11) * 0x1p-53; }

double Sequence::uniform(double low_bound, double high_bound) {
  return low_bound + (high_bound - low_bound) * uniform();
}

double Sequence::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));  // 1 - u lies in (0, 1]
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

std::uint64_t Sequence::below(std::uint64_t bound) {
  // 2^64 mod bound values at the low end are drawn again, so that the rest divides evenly.
  const std::uint64_t uneven = (std::numeric_limits<std::uint64_t>::max() - bound + 1) % bound;
  std::uint64_t value = next_bits();
  while (value < uneven) value = next_bits();
  return value % bound;
}

std::uint64_t bits(std::uint64_t seed, Stream stream, std::uint64_t a, std::uint64_t b, std::uint64_t i) {
  return Sequence(seed, stream, a, b).at(i);
}

}  // namespace lockstep::random
