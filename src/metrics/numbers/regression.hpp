// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/metrics/meter.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

// y is a target and p its prediction; units are those of the targets. Every value is NaN of no sample.
namespace lockstep::metrics {

/// Errors of one output, from sums in which nothing is rounded: a large mean costs no digits of a small variance.
class RegressionErrors {
 public:
  void add(double prediction, double target);

  std::int64_t count() const noexcept { return count_; }
  double mse() const;   ///< mean of (y - p)^2
  double rmse() const;  ///< its root
  double mae() const;   ///< mean of |y - p|
  double mape() const;  ///< mean of |y - p| / max(|y|, 2^-52); 1 is 100 %
  /// 1 - sum (y - p)^2 / sum (y - mean y)^2. Of targets that are all the same 1 if every prediction is right, else 0;
  /// NaN of fewer than two samples.
  double r2() const;
  /// 1 - var(y - p) / var(y), with the same exceptions.
  double explained_variance() const;
  /// cov(y, p) / sqrt(var(y) var(p)), in [-1, 1]; NaN where a variance is 0.
  double pearson() const;

  template <class Visit>
  void visit_words(Visit& visit) {
    visit(count_);
    for (ExactSum& sum : sums_) visit(sum);
  }

 private:
  enum Sum : std::size_t { kError, kError2, kAbsolute, kRelative, kTarget, kTarget2, kPrediction, kPrediction2, kBoth };
  double mean(Sum sum) const;

  std::int64_t count_ = 0;
  std::array<ExactSum, kBoth + 1> sums_;
};

/// Adds each output of each sample to its errors.
/// @param samples  as many outputs as targets: those of `errors`, each with the same number of points in a row
/// @throws DataError  other numbers of them
/// Not collective.
void add_errors(const Samples& samples, std::span<RegressionErrors> errors);

/// Median of |y - p|; of an even number the mean of the two in the middle. NaN if an error is.
double median_absolute_error(std::span<const double> predictions, std::span<const double> targets);
/// Largest |y - p|. NaN if an error is.
double max_error(std::span<const double> predictions, std::span<const double> targets);
/// Pearson's correlation of ranks, where equal values share the mean of theirs. NaN where all are equal, or one is NaN.
double spearman(std::span<const double> predictions, std::span<const double> targets);

}  // namespace lockstep::metrics
