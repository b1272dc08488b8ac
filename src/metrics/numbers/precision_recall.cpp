// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/precision_recall.hpp"

#include <stdexcept>
#include <string>

#include "metrics/numbers/ratio.hpp"

namespace lockstep::metrics {

PrecisionRecall precision_recall(const ClassCounts& counts, double beta) {
  const double square = beta * beta;
  const auto hits = static_cast<double>(counts.true_positives);
  return {.precision = ratio(counts.true_positives, counts.predicted),
          .recall = ratio(counts.true_positives, counts.support),
          .f_score = ratio((1 + square) * hits,
                           square * static_cast<double>(counts.support) + static_cast<double>(counts.predicted))};
}

Averaging averaging_of(std::string_view word) {
  if (word == "macro") return Averaging::macro;
  if (word == "weighted") return Averaging::weighted;
  if (word == "micro") return Averaging::micro;
  throw std::invalid_argument("unknown kind of averaging '" + std::string(word) + "'");
}

PrecisionRecall precision_recall(std::span<const ClassCounts> classes, Averaging averaging, double beta) {
  ClassCounts summed;
  PrecisionRecall mean;
  double weights = 0;
  for (const ClassCounts& counts : classes) {
    summed.true_positives += counts.true_positives;
    summed.predicted += counts.predicted;
    summed.support += counts.support;
    const PrecisionRecall one = precision_recall(counts, beta);
    const double weight = averaging == Averaging::macro ? 1 : static_cast<double>(counts.support);
    mean.precision += weight * one.precision;
    mean.recall += weight * one.recall;
    mean.f_score += weight * one.f_score;
    weights += weight;
  }
  if (averaging == Averaging::micro) return precision_recall(summed, beta);
  return {ratio(mean.precision, weights), ratio(mean.recall, weights), ratio(mean.f_score, weights)};
}

std::vector<ClassCounts> class_counts(const Confusion& confusion) {
  std::vector<ClassCounts> classes;
  for (std::int64_t c = 0; c < confusion.classes(); ++c) {
    classes.push_back({confusion.at(c, c), confusion.predicted(c), confusion.support(c)});
  }
  return classes;
}

}  // namespace lockstep::metrics
