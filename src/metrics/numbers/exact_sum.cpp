// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/metrics/meter.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace lockstep::metrics {

namespace {

constexpr int kDigitBits = 32;
constexpr std::int64_t kDigitMask = 0xffffffff;
constexpr int kLowestExponent = -1074;                         // exponent of the smallest positive double
constexpr std::int64_t kMaxUnsettled = std::int64_t{1} << 28;  // an addition adds less than 2^33 to a digit

/// Rounds a window of 64 bits, whose highest bit is 1, to the 53 bits of a double; ties to even.
/// @param is_more  something below the window is not 0
std::uint64_t rounded_to_double(std::uint64_t window, bool is_more) {
  constexpr std::uint64_t kHalf = 1024;
  const std::uint64_t kept = window >> 11;
  const std::uint64_t rest = window & 2047;
  const bool is_up = rest > kHalf || (rest == kHalf && (is_more || (kept & 1) != 0));
  return kept + (is_up ? 1 : 0);
}

}  // namespace

ExactSum::ExactSum(std::span<const std::int64_t> words) {
  if (words.size() != kWords) throw std::invalid_argument("an ExactSum has " + std::to_string(kWords) + " words");
  std::copy(words.begin(), words.end(), words_.begin());
  settle();
}

void ExactSum::add(double value) {
  if (!std::isfinite(value)) {
    ++words_[std::isnan(value) ? kNan : value > 0 ? kInfinity : kMinusInfinity];
    return;
  }
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t exponent = (bits >> 52) & 2047;
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  const std::uint64_t mantissa = exponent == 0 ? fraction : fraction | (std::uint64_t{1} << 52);
  const std::uint64_t place = exponent == 0 ? 0 : exponent - 1;  // the mantissa's lowest bit is 2^place * 2^-1074
  const std::size_t digit = place / kDigitBits;
  const std::uint64_t shift = place % kDigitBits;
  const std::uint64_t low = (mantissa & kDigitMask) << shift;
  const std::uint64_t high = (mantissa >> kDigitBits) << shift;
  const std::int64_t sign = value < 0 ? -1 : 1;
  words_[digit] += sign * static_cast<std::int64_t>(low & kDigitMask);
  words_[digit + 1] += sign * static_cast<std::int64_t>((low >> kDigitBits) + (high & kDigitMask));
  words_[digit + 2] += sign * static_cast<std::int64_t>(high >> kDigitBits);
  if (++unsettled_ == kMaxUnsettled) settle();
}

void ExactSum::add_product(double a, double b) {
  const double product = a * b;
  add(product);
  if (std::isfinite(product)) add(std::fma(a, b, -product));
}

/// Leaves every digit but the highest in [0, 2^32).
void ExactSum::settle() {
  for (std::size_t i = 0; i + 1 < kDigits; ++i) {
    words_[i + 1] += words_[i] >> kDigitBits;
    words_[i] &= kDigitMask;
  }
  unsettled_ = 0;
}

double ExactSum::value() const {
  if (words_[kNan] > 0 || (words_[kInfinity] > 0 && words_[kMinusInfinity] > 0)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (words_[kInfinity] > 0) return std::numeric_limits<double>::infinity();
  if (words_[kMinusInfinity] > 0) return -std::numeric_limits<double>::infinity();
  ExactSum magnitude = *this;
  magnitude.settle();
  const bool is_negative = magnitude.words_[kDigits - 1] < 0;
  if (is_negative) {
    for (std::size_t i = 0; i < kDigits; ++i) magnitude.words_[i] = -magnitude.words_[i];
    magnitude.settle();
  }
  const auto digit = [&magnitude](std::ptrdiff_t i) {
    return i < 0 ? std::uint64_t{0} : static_cast<std::uint64_t>(magnitude.words_[static_cast<std::size_t>(i)]);
  };
  auto highest = static_cast<std::ptrdiff_t>(kDigits) - 1;
  while (highest >= 0 && digit(highest) == 0) --highest;
  if (highest < 0) return 0;
  const std::uint64_t upper = (digit(highest) << kDigitBits) | digit(highest - 1);
  const int zeros = std::countl_zero(upper);  // below 32
  const std::uint64_t below = digit(highest - 2) << zeros;
  const std::uint64_t window = (upper << zeros) | (below >> kDigitBits);
  bool is_more = (below & kDigitMask) != 0;
  for (std::ptrdiff_t i = highest - 3; i >= 0 && !is_more; --i) is_more = digit(i) != 0;
  const auto exponent = kDigitBits * static_cast<int>(highest - 1) - zeros + 11 + kLowestExponent;
  const double size = std::ldexp(static_cast<double>(rounded_to_double(window, is_more)), exponent);
  return is_negative ? -size : size;
}

ExactSum::Pair ExactSum::pair() const {
  Pair pair{.high = value(), .low = 0};
  if (!std::isfinite(pair.high)) return pair;
  ExactSum rest = *this;
  rest.add(-pair.high);
  pair.low = rest.value();
  return pair;
}

void ExactSum::store(std::span<std::int64_t> words) const {
  ExactSum settled = *this;
  settled.settle();
  std::copy(settled.words_.begin(), settled.words_.end(), words.begin());
}

}  // namespace lockstep::metrics
