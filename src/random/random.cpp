// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/random/random.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <string>

namespace lockstep::random {

namespace {

std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
std::uint32_t high(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }

constexpr int kRounds = 10;
constexpr std::array<std::uint64_t, 2> kMultipliers = {0xD2511F53U, 0xCD9E8D57U};
constexpr std::array<std::uint32_t, 2> kKeySteps = {0x9E3779B9U, 0xBB67AE85U};

std::uint64_t join(std::uint32_t low_word, std::uint32_t high_word) {
  return std::uint64_t{high_word} << 32 | low_word;
}

/// A trial is rejected with a probability below 0.05, so that the last one is never reached.
constexpr int kMaxTrials = 32;

/// The logarithm of a number with the distribution Gamma(shape, 1): for small shapes, the number itself may be 0.
double log_gamma_variate(Sequence& sequence, double shape) {
  const bool is_small = shape < 1;
  const double d = (is_small ? shape + 1 : shape) - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  double cube = 1;
  for (int trial = 0; trial < kMaxTrials; ++trial) {
    const double x = sequence.normal();
    const double log_u = std::log(1.0 - sequence.uniform());
    const double root = 1.0 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (log_u >= 0.5 * x * x + d - d * v + d * std::log(v)) continue;
    cube = v;
    break;
  }
  const double value = std::log(d * cube);
  return is_small ? value + std::log(1.0 - sequence.uniform()) / shape : value;
}

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

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t even = kMultipliers[0] * counter[0];
    const std::uint64_t odd = kMultipliers[1] * counter[2];
    counter = {high(odd) ^ counter[1] ^ key[0], low(odd), high(even) ^ counter[3] ^ key[1], low(even)};
    key[0] += kKeySteps[0];
    key[1] += kKeySteps[1];
  }
  return counter;
}

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

double beta_variate(Sequence& sequence, double alpha, double beta) {
  const double first = log_gamma_variate(sequence, alpha);
  const double second = log_gamma_variate(sequence, beta);
  return 1.0 / (1.0 + std::exp(second - first));
}

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
