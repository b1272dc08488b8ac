// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/regression.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "metrics/numbers/ratio.hpp"

namespace lockstep::metrics {

namespace {

/// n * sum(a b) - sum(a) * sum(b), without loss by cancellation: n^2 times their covariance.
double centered(std::int64_t n, const ExactSum& a, const ExactSum& b, const ExactSum& ab) {
  const ExactSum::Pair x = a.pair();
  const ExactSum::Pair y = b.pair();
  const ExactSum::Pair xy = ab.pair();
  const auto count = static_cast<double>(n);
  ExactSum sum;
  sum.add_product(count, xy.high);
  sum.add_product(count, xy.low);
  sum.add_product(-x.high, y.high);
  sum.add_product(-x.high, y.low);
  sum.add_product(-x.low, y.high);
  sum.add_product(-x.low, y.low);
  return sum.value();
}

/// 1 - part / whole, where a whole of 0 leaves only right and wrong.
double explained(double part, double whole) {
  if (whole == 0) return part == 0 ? 1 : part > 0 ? 0 : kNan;
  return 1 - part / whole;
}

bool any_nan(std::span<const double> values) {
  return std::any_of(values.begin(), values.end(), [](double value) { return std::isnan(value); });
}

/// |y - p| of each; empty if one is NaN.
std::vector<double> absolute_errors(std::span<const double> predictions, std::span<const double> targets) {
  std::vector<double> errors;
  for (std::size_t i = 0; i < targets.size(); ++i) errors.push_back(std::abs(targets[i] - predictions[i]));
  if (any_nan(errors)) errors.clear();
  return errors;
}

/// Ranks from 1; equal values share the mean of their ranks.
std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [values](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<double>(begin + 1 + end) / 2;
    begin = end;
  }
  return ranks;
}

}  // namespace

void RegressionErrors::add(double prediction, double target) {
  const double error = target - prediction;
  ++count_;
  sums_[kError].add(error);
  sums_[kError2].add_product(error, error);
  sums_[kAbsolute].add(std::abs(error));
  sums_[kRelative].add(std::abs(error) / std::max(std::abs(target), std::numeric_limits<double>::epsilon()));
  sums_[kTarget].add(target);
  sums_[kTarget2].add_product(target, target);
  sums_[kPrediction].add(prediction);
  sums_[kPrediction2].add_product(prediction, prediction);
  sums_[kBoth].add_product(target, prediction);
}

double RegressionErrors::mean(Sum sum) const { return sums_[sum].value() / static_cast<double>(count_); }
double RegressionErrors::mse() const { return mean(kError2); }
double RegressionErrors::rmse() const { return std::sqrt(mse()); }
double RegressionErrors::mae() const { return mean(kAbsolute); }
double RegressionErrors::mape() const { return mean(kRelative); }

double RegressionErrors::r2() const {
  if (count_ < 2) return kNan;
  const double whole = centered(count_, sums_[kTarget], sums_[kTarget], sums_[kTarget2]);
  return explained(static_cast<double>(count_) * sums_[kError2].value(), whole);
}

double RegressionErrors::explained_variance() const {
  if (count_ < 2) return kNan;
  return explained(centered(count_, sums_[kError], sums_[kError], sums_[kError2]),
                   centered(count_, sums_[kTarget], sums_[kTarget], sums_[kTarget2]));
}

double RegressionErrors::pearson() const {
  const double targets = centered(count_, sums_[kTarget], sums_[kTarget], sums_[kTarget2]);
  const double predictions = centered(count_, sums_[kPrediction], sums_[kPrediction], sums_[kPrediction2]);
  const double both = centered(count_, sums_[kTarget], sums_[kPrediction], sums_[kBoth]);
  const double correlation = both / (std::sqrt(targets) * std::sqrt(predictions));
  return std::isnan(correlation) ? kNan : std::clamp(correlation, -1.0, 1.0);
}

void add_errors(const Samples& samples, std::span<RegressionErrors> errors) {
  if (samples.size() == 0) return;
  const std::size_t points = samples.output_columns / std::max<std::size_t>(errors.size(), 1);
  const std::size_t columns = points * errors.size();
  if (points == 0 || samples.output_columns != columns || samples.target_columns != columns) {
    throw DataError("errors of " + std::to_string(errors.size()) +
                    " outputs need the same number of outputs and targets, not " +
                    std::to_string(samples.output_columns) + " and " + std::to_string(samples.target_columns));
  }
  for (std::size_t i = 0; i < samples.size(); ++i) {
    for (std::size_t j = 0; j < columns; ++j) errors[j / points].add(samples.output(i)[j], samples.target(i)[j]);
  }
}

double median_absolute_error(std::span<const double> predictions, std::span<const double> targets) {
  std::vector<double> errors = absolute_errors(predictions, targets);
  if (errors.empty()) return kNan;
  const auto middle = errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2);
  std::nth_element(errors.begin(), middle, errors.end());
  if (errors.size() % 2 == 1) return *middle;
  return (*std::max_element(errors.begin(), middle) + *middle) / 2;
}

double max_error(std::span<const double> predictions, std::span<const double> targets) {
  const std::vector<double> errors = absolute_errors(predictions, targets);
  return errors.empty() ? kNan : *std::max_element(errors.begin(), errors.end());
}

double spearman(std::span<const double> predictions, std::span<const double> targets) {
  if (any_nan(predictions) || any_nan(targets)) return kNan;
  const std::vector<double> p = ranks_of(predictions);
  const std::vector<double> y = ranks_of(targets);
  RegressionErrors ranks;
  for (std::size_t i = 0; i < p.size(); ++i) ranks.add(p[i], y[i]);
  return ranks.pearson();
}

}  // namespace lockstep::metrics
