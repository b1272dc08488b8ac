// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/classification.hpp"

#include <lockstep/core/error.hpp>

#include <cmath>
#include <stdexcept>
#include <string>

#include "metrics/numbers/ratio.hpp"

namespace lockstep::metrics {

namespace {

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

void count_class(std::span<const double> scores, double target, std::size_t k, TopKCounts& counts) {
  const std::int64_t label = class_of(target, static_cast<std::int64_t>(scores.size()));
  if (label == kIgnored) return;
  const bool is_hit = place_of(scores, static_cast<std::size_t>(label)) < k;
  ++counts.samples;
  ++counts.positives;
  counts.found += is_hit;
  counts.hits += is_hit;
}

void count_labels(std::span<const double> scores, std::span<const double> target, std::size_t k, TopKCounts& counts) {
  std::int64_t hits = 0;
  for (std::size_t c = 0; c < scores.size(); ++c) {
    const int label = label_of(target[c]);
    if (label < 0) throw DataError("top_k counts every label: -1 (not counted) is not supported");
    counts.positives += label;
    if (label == 1 && place_of(scores, c) < k) ++hits;
  }
  ++counts.samples;
  counts.found += hits > 0;
  counts.hits += hits;
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

void Multilabel::add(const Samples& samples, double threshold) {
  if (samples.size() == 0) return;
  if (samples.output_columns != classes_.size() || samples.target_columns != classes_.size()) {
    throw DataError(std::to_string(classes_.size()) + " classes need one score and one label per class, not " +
                    std::to_string(samples.output_columns) + " outputs and " + std::to_string(samples.target_columns) +
                    " targets");
  }
  for (std::size_t i = 0; i < samples.size(); ++i) {
    ClassCounts one;
    std::int64_t wrong = 0;
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      const int label = label_of(samples.target(i)[c]);
      if (label < 0) continue;
      const int predicted = samples.output(i)[c] >= threshold ? 1 : 0;
      for (ClassCounts* const counts : {&one, &classes_[c]}) {
        counts->true_positives += label * predicted;
        counts->predicted += predicted;
        counts->support += label;
      }
      ++labels_;
      wrong += label != predicted;
    }
    const PrecisionRecall ratios = precision_recall(one);
    precision_.add(ratios.precision);
    recall_.add(ratios.recall);
    f_score_.add(ratios.f_score);
    ++samples_;
    wrong_ += wrong;
    faultless_ += wrong == 0;
  }
}

PrecisionRecall Multilabel::over_samples() const {
  const auto n = static_cast<double>(samples_);
  return {ratio(precision_.value(), n), ratio(recall_.value(), n), ratio(f_score_.value(), n)};
}

double Multilabel::subset_accuracy() const { return ratio(faultless_, samples_); }
double Multilabel::hamming_loss() const { return ratio(wrong_, labels_); }

double TopKCounts::accuracy() const { return ratio(found, samples); }
double TopKCounts::precision(std::int64_t k) const { return ratio(hits, k * samples); }
double TopKCounts::recall() const { return ratio(hits, positives); }

TopKCounts top_k_counts(const Samples& samples, std::int64_t k) {
  TopKCounts counts;
  if (samples.size() == 0) return counts;
  if (k < 1 || k > static_cast<std::int64_t>(samples.output_columns)) {
    throw DataError("the best " + std::to_string(k) + " of " + std::to_string(samples.output_columns) +
                    " classes cannot be taken");
  }
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (samples.has_target_of_each_class()) {
      count_labels(samples.output(i), samples.target(i), static_cast<std::size_t>(k), counts);
    } else {
      count_class(samples.output(i), samples.target(i).front(), static_cast<std::size_t>(k), counts);
    }
  }
  return counts;
}

}  // namespace lockstep::metrics
