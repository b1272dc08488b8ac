// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/confusion.hpp"

#include <lockstep/core/error.hpp>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "metrics/numbers/ratio.hpp"

namespace lockstep::metrics {

namespace {

double defined_ratio(std::int64_t part, std::int64_t whole) { return whole == 0 ? kNan : ratio(part, whole); }

double mean_of_defined(const std::vector<double>& values) {
  double sum = 0;
  std::int64_t count = 0;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  return count == 0 ? kNan : sum / static_cast<double>(count);
}

}  // namespace

Confusion::Confusion(std::span<const std::int64_t> counts, std::int64_t classes)
    : classes_(classes),
      counts_(counts.begin(), counts.end()),
      support_(static_cast<std::size_t>(classes)),
      predicted_(static_cast<std::size_t>(classes)) {
  if (static_cast<std::int64_t>(counts.size()) != classes * classes) {
    throw std::invalid_argument("a confusion matrix of " + std::to_string(classes) +
                                " classes needs one row and one column per class");
  }
  for (std::int64_t row = 0; row < classes; ++row) {
    for (std::int64_t column = 0; column < classes; ++column) {
      support_[static_cast<std::size_t>(row)] += at(row, column);
      predicted_[static_cast<std::size_t>(column)] += at(row, column);
      total_ += at(row, column);
    }
    correct_ += at(row, row);
  }
}

void count_confusion(const Samples& samples, std::int64_t classes, std::int64_t ignored,
                     std::span<std::int64_t> counts) {
  if (samples.size() == 0) return;
  const auto columns = static_cast<std::int64_t>(samples.output_columns);
  if (samples.target_columns != 1 || (columns != classes && columns != 1)) {
    throw DataError("a confusion matrix of " + std::to_string(classes) +
                    " classes needs one score per class and one target, not " + std::to_string(columns) +
                    " outputs and " + std::to_string(samples.target_columns) + " targets");
  }
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::int64_t target = class_of(samples.target(i).front(), classes, ignored);
    if (target == kIgnored) continue;
    const auto output = samples.output(i);
    const std::int64_t predicted =
        columns == classes ? static_cast<std::int64_t>(best_class(output)) : class_of(output.front(), classes);
    if (predicted == kIgnored) throw DataError("the prediction " + std::to_string(kIgnored) + " is not a class");
    ++counts[static_cast<std::size_t>(target * classes + predicted)];
  }
}

double balanced_accuracy(const Confusion& confusion) {
  double sum = 0;
  std::int64_t present = 0;
  for (std::int64_t c = 0; c < confusion.classes(); ++c) {
    if (confusion.support(c) == 0) continue;
    sum += ratio(confusion.at(c, c), confusion.support(c));
    ++present;
  }
  return ratio(sum, static_cast<double>(present));
}

double cohen_kappa(const Confusion& confusion) {
  const auto n = static_cast<double>(confusion.total());
  double by_chance = 0;
  for (std::int64_t c = 0; c < confusion.classes(); ++c) {
    by_chance += static_cast<double>(confusion.support(c)) * static_cast<double>(confusion.predicted(c));
  }
  const double expected = by_chance / (n * n);
  if (confusion.total() < 2 || expected == 1) return kNan;
  return (static_cast<double>(confusion.correct()) / n - expected) / (1 - expected);
}

double matthews(const Confusion& confusion) {
  const auto n = static_cast<double>(confusion.total());
  double both = 0;
  double targets = 0;
  double predictions = 0;
  for (std::int64_t c = 0; c < confusion.classes(); ++c) {
    const auto support = static_cast<double>(confusion.support(c));
    const auto predicted = static_cast<double>(confusion.predicted(c));
    both += support * predicted;
    targets += support * support;
    predictions += predicted * predicted;
  }
  const double covariance = static_cast<double>(confusion.correct()) * n - both;
  return ratio(covariance, std::sqrt(n * n - targets) * std::sqrt(n * n - predictions));
}

Overlap overlap(const Confusion& confusion) {
  Overlap result;
  for (std::int64_t c = 0; c < confusion.classes(); ++c) {
    const std::int64_t both = confusion.at(c, c);
    const std::int64_t sum = confusion.support(c) + confusion.predicted(c);
    result.iou.push_back(defined_ratio(both, sum - both));
    result.acc.push_back(defined_ratio(both, confusion.support(c)));
    result.dice.push_back(defined_ratio(2 * both, sum));
  }
  result.miou = mean_of_defined(result.iou);
  result.macc = mean_of_defined(result.acc);
  result.mdice = mean_of_defined(result.dice);
  result.aacc = ratio(confusion.correct(), confusion.total());
  return result;
}

}  // namespace lockstep::metrics
