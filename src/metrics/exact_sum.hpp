// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::metrics {

/// A sum of doubles in which nothing is rounded, so that neither order nor grouping changes it.
///
/// It is kept as integers: digits of 32 bits from 2^-1074 upwards, and how often infinities and NaN came. Words of
/// several sums, added one by one as int64, are the words of the whole: that is how ranks add theirs. Source: Kulisch,
/// Computer Arithmetic and Validity, section 8: the long accumulator.
/// Not collective.
class ExactSum {
 public:
  static constexpr std::size_t kWords = 71;

  ExactSum() = default;
  /// Goes on from stored words, or from the sum of the words of up to 2^30 sums.
  explicit ExactSum(std::span<const std::int64_t> words);

  void add(double value);
  /// Adds a * b. Exact unless the product is below 2^-969 or above the largest double.
  void add_product(double a, double b);

  /// The sum, rounded once to the nearest double, ties to even; 0 of nothing.
  double value() const;
  /// The sum to about 106 bits: value(), and what is left of it.
  struct Pair {
    double high = 0;
    double low = 0;
  };
  Pair pair() const;

  /// Puts kWords words there.
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

/// The mean of values of which each counts `weight` times, without rounding on the way.
class WeightedMean {
 public:
  static constexpr std::size_t kWords = 2 * ExactSum::kWords;

  WeightedMean() = default;
  explicit WeightedMean(std::span<const std::int64_t> words);

  /// @param weight  such as the number of samples that `value` is a mean of; >= 0. Of weight 0 the value is not looked
  /// at
  /// @throws std::invalid_argument  a negative weight, or one that is not finite
  void add(double value, double weight = 1);
  double weight() const { return weights_.value(); }
  /// NaN where the weights are 0 together.
  double value() const;
  void store(std::span<std::int64_t> words) const;

 private:
  ExactSum products_;
  ExactSum weights_;
};

}  // namespace lockstep::metrics
