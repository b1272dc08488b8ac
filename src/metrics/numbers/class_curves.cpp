// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/class_curves.hpp"

#include <lockstep/core/error.hpp>

#include <cmath>
#include <limits>
#include <string>

#include "metrics/numbers/ratio.hpp"

namespace lockstep::metrics {

namespace {

/// The label that sample i asks of output c: 0, 1 or -1.
double label_at(const Samples& samples, std::size_t i, std::size_t c) {
  if (samples.target_columns == samples.output_columns) return samples.target(i)[c];
  const std::int64_t target = class_of(samples.target(i).front(), static_cast<std::int64_t>(samples.output_columns));
  return target == kIgnored ? -1 : target == static_cast<std::int64_t>(c) ? 1 : 0;
}

MeanOfClasses mean_of(const std::vector<ThresholdCurve>& curves, double (*value)(const ThresholdCurve&)) {
  MeanOfClasses result;
  double sum = 0;
  double count = 0;
  for (const ThresholdCurve& curve : curves) {
    result.classes.push_back(value(curve));
    if (curve.positives == 0 && !curve.has_nan) continue;
    sum += result.classes.back();
    ++count;
  }
  result.mean = count == 0 ? kNan : sum / count;
  return result;
}

}  // namespace

std::vector<ThresholdCurve> class_curves(const Samples& samples) {
  if (samples.size() > 0 && samples.target_columns != 1 && samples.target_columns != samples.output_columns) {
    throw DataError("curves of " + std::to_string(samples.output_columns) +
                    " outputs need one target, or one per output, not " + std::to_string(samples.target_columns));
  }
  std::vector<ThresholdCurve> curves;
  std::vector<double> scores(samples.size());
  std::vector<double> labels(samples.size());
  for (std::size_t c = 0; c < samples.output_columns; ++c) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      scores[i] = samples.output(i)[c];
      labels[i] = label_at(samples, i, c);
    }
    curves.push_back(threshold_curve(scores, labels));
  }
  return curves;
}

double mean_auroc(const std::vector<ThresholdCurve>& curves, Averaging averaging) {
  double sum = 0;
  double weights = 0;
  for (const ThresholdCurve& curve : curves) {
    if (curve.has_nan) return kNan;
    if (curve.positives == 0 || curve.negatives == 0) continue;
    const double weight = averaging == Averaging::weighted ? static_cast<double>(curve.positives) : 1;
    sum += weight * auroc(curve);
    weights += weight;
  }
  return weights == 0 ? kNan : sum / weights;
}

double one_vs_one_auroc(const Samples& samples) {
  if (samples.target_columns != 1 || samples.output_columns < 2) return kNan;
  const auto classes = static_cast<std::int64_t>(samples.output_columns);
  std::vector<std::vector<std::size_t>> members(samples.output_columns);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::int64_t target = class_of(samples.target(i).front(), classes);
    if (target != kIgnored) members[static_cast<std::size_t>(target)].push_back(i);
  }
  const auto area_of = [&](std::size_t positive, std::size_t negative) {
    std::vector<double> scores;
    std::vector<double> labels;
    for (const std::size_t c : {positive, negative}) {
      for (const std::size_t i : members[c]) {
        scores.push_back(samples.output(i)[positive]);
        labels.push_back(c == positive ? 1 : 0);
      }
    }
    return auroc(threshold_curve(scores, labels));
  };
  double sum = 0;
  double pairs = 0;
  for (std::size_t a = 0; a < members.size(); ++a) {
    for (std::size_t b = a + 1; b < members.size(); ++b) {
      if (members[a].empty() || members[b].empty()) continue;
      sum += (area_of(a, b) + area_of(b, a)) / 2;
      ++pairs;
    }
  }
  return pairs == 0 ? kNan : sum / pairs;
}

MeanOfClasses mean_average_precision(const std::vector<ThresholdCurve>& curves) {
  return mean_of(curves, average_precision);
}

MeanOfClasses mean_interpolated_average_precision(const std::vector<ThresholdCurve>& curves) {
  return mean_of(curves, interpolated_average_precision);
}

}  // namespace lockstep::metrics
