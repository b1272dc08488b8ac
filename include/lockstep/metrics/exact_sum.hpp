// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::metrics {

/// A sum of doubles in which nothing is rounded, so that neither order nor grouping changes it.
///
/// It consists of integers: digits of 32 bits from 2^-1074 upwards, and the numbers of infinities and NaN. Words of
/// several sums, added one by one as int64, are the words of the sum of all, so that ranks can add them exactly. See
/// meter_of_sums. Source: Kulisch, Computer Arithmetic and Validity, section 8: the long accumulator.
/// Not collective.
class ExactSum {
 public:
  static constexpr std::size_t kWords = 71;

  ExactSum() = default;
  /// Continues stored words, or the sum of the words of up to 2^30 sums.
  /// @throws std::invalid_argument  not kWords words
  explicit ExactSum(std::span<const std::int64_t> words);

  void add(double value);
  /// Adds a * b. Exact unless the product is below 2^-969 or above the largest double.
  void add_product(double a, double b);

  /// The sum, rounded once to the nearest double, ties to even; 0 if nothing was added. NaN if a NaN or infinities of
  /// both signs were added, otherwise infinite if one was.
  double value() const;
  /// The sum to about 106 bits: value(), and what is left of it.
  struct Pair {
    double high = 0;
    double low = 0;
  };
  Pair pair() const;

  /// Writes kWords words.
  void store(std::span<std::int64_t> words) const;

 private:
  static constexpr std::size_t kDigits = 68;  // 2098 bits of the largest double, and room for 2^63 of them
  static constexpr std::size_t kNan = kDigits;
  static constexpr std::size_t kInfinity = kDigits + 1;
  static constexpr std::size_t kMinusInfinity = kDigits + 2;

  void settle();

  std::array<std::int64_t, kWords> words_ = {};
  std::int64_t unsettled_ = 0;  // additions since carries were last taken on
};

}  // namespace lockstep::metrics
