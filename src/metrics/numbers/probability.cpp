// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/probability.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <string>
#include <vector>

#include "core/text/text.hpp"

namespace lockstep::metrics {

void Likelihood::add(const Samples& samples, double smoothing, std::int64_t ignored) {
  if (samples.size() > 0 && samples.target_columns != 1) {
    throw DataError("a likelihood needs one target, not " + std::to_string(samples.target_columns));
  }
  const auto classes = static_cast<std::int64_t>(samples.output_columns);
  std::vector<double> logs(samples.output_columns);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::int64_t target = class_of(samples.target(i).front(), classes, ignored);
    if (target == kIgnored) continue;
    const auto scores = samples.output(i);
    logs.assign(scores.begin(), scores.end());
    log_softmax(logs);
    double loss = -logs[static_cast<std::size_t>(target)];
    if (smoothing != 0) {
      const double even = -std::accumulate(logs.begin(), logs.end(), 0.0) / static_cast<double>(classes);
      loss = (1 - smoothing) * loss + smoothing * even;
    }
    sum_.add(loss);
    ++count_;
  }
}

double Likelihood::cross_entropy() const { return sum_.value() / static_cast<double>(count_); }
double Likelihood::perplexity() const { return std::exp(cross_entropy()); }
double Likelihood::bits_per_token() const { return cross_entropy() / std::numbers::ln2; }

Calibration::Calibration(std::int64_t bins) : bins_(static_cast<std::size_t>(bins)) {}

void Calibration::add(const Samples& samples) {
  if (samples.size() > 0 && samples.target_columns != 1) {
    throw DataError("calibration needs one target, not " + std::to_string(samples.target_columns));
  }
  const auto bins = static_cast<double>(bins_.size());
  std::vector<double> probabilities;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto scores = samples.output(i);
    const std::int64_t target = class_of(samples.target(i).front(), static_cast<std::int64_t>(scores.size()));
    if (target == kIgnored) continue;
    probabilities.assign(scores.begin(), scores.end());
    softmax(probabilities);
    const std::size_t best = best_class(probabilities);
    const double confidence = probabilities[best];
    // A bin holds its upper border; what is NaN goes to the first, whose sum it makes NaN.
    const double place = std::isnan(confidence) ? 0 : std::clamp(std::ceil(confidence * bins) - 1, 0.0, bins - 1);
    Bin& bin = bins_[static_cast<std::size_t>(place)];
    ++bin.count;
    bin.correct += static_cast<std::int64_t>(best) == target;
    bin.confidences.add(confidence);
  }
}

double Calibration::expected_error() const {
  double gaps = 0;
  std::int64_t count = 0;
  for (const Bin& bin : bins_) {
    gaps += std::abs(static_cast<double>(bin.correct) - bin.confidences.value());
    count += bin.count;
  }
  return gaps / static_cast<double>(count);
}

void ProbabilityScores::add(const Samples& samples) {
  constexpr double kLeast = 1e-6;
  if (samples.output_columns != samples.target_columns) {
    throw DataError("probabilities of " + std::to_string(samples.output_columns) +
                    " outputs need the same number of labels, not " + std::to_string(samples.target_columns));
  }
  for (std::size_t i = 0; i < samples.outputs.size(); ++i) {
    const int label = label_of(samples.targets[i]);
    const double p = samples.outputs[i];
    if (p < 0 || p > 1) throw DataError("the probability is " + number_text(p) + "; it must be in [0, 1]");
    if (label < 0) continue;
    const double error = p - label;
    const double kept = std::isnan(p) ? p : std::clamp(p, kLeast, 1 - kLeast);
    ++count_;
    squares_.add_product(error, error);
    logs_.add(-std::log(label == 1 ? kept : 1 - kept));
  }
}

double ProbabilityScores::brier() const { return squares_.value() / static_cast<double>(count_); }
double ProbabilityScores::log_loss() const { return logs_.value() / static_cast<double>(count_); }

}  // namespace lockstep::metrics
